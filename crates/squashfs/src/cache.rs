//! A cache of bounded size, in which a value that several threads want at once is made once.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// What costs a part of the cache's size.
pub(crate) trait Cost {
    /// Bytes of memory.
    fn cost(&self) -> usize;
}

/// Values by number.
#[derive(Debug)]
pub(crate) struct Cache<V> {
    state: Mutex<State<V>>,
    /// A value that was being made is there, or has failed.
    made: Condvar,
    /// Bytes of all values.
    limit: usize,
}

#[derive(Debug)]
struct State<V> {
    slots: HashMap<u64, Slot<V>>,
    /// The values that are there, in the order in which they are looked at for eviction.
    order: VecDeque<u64>,
    used: usize,
}

#[derive(Debug)]
enum Slot<V> {
    /// A thread makes it.
    Awaited,
    Ready {
        value: Arc<V>,
        /// It was used since it was last looked at for eviction.
        used: bool,
    },
}

impl<V: Cost> Cache<V> {
    pub(crate) fn new(limit: usize) -> Self {
        let state = State { slots: HashMap::new(), order: VecDeque::new(), used: 0 };
        Cache { state: Mutex::new(state), made: Condvar::new(), limit }
    }

    /// The value of `key`; waits for a thread that makes it.
    pub(crate) fn get(&self, key: u64) -> Option<Arc<V>> {
        let mut state = self.lock();
        loop {
            match state.slots.get_mut(&key)? {
                Slot::Ready { value, used } => {
                    *used = true;
                    return Some(Arc::clone(value));
                }
                Slot::Awaited => {
                    state = self.made.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// The value of `key`, made by `make` where it is not there. Of several threads one makes it; where it fails, the
    /// next one tries.
    pub(crate) fn get_or_make<E>(&self, key: u64, make: impl FnOnce() -> Result<V, E>) -> Result<Arc<V>, E> {
        let mut state = self.lock();
        loop {
            match state.slots.get_mut(&key) {
                Some(Slot::Ready { value, used }) => {
                    *used = true;
                    return Ok(Arc::clone(value));
                }
                Some(Slot::Awaited) => {
                    state = self.made.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                None => break,
            }
        }
        state.slots.insert(key, Slot::Awaited);
        drop(state);
        let mut promise = Promise { cache: self, key, value: None };
        let value = Arc::new(make()?);
        promise.value = Some(Arc::clone(&value));
        Ok(value)
    }

    fn lock(&self) -> MutexGuard<'_, State<V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Settles an awaited slot, also where making the value has failed or panicked.
struct Promise<'a, V: Cost> {
    cache: &'a Cache<V>,
    key: u64,
    value: Option<Arc<V>>,
}

impl<V: Cost> Drop for Promise<'_, V> {
    fn drop(&mut self) {
        let mut state = self.cache.lock();
        match self.value.take() {
            None => {
                state.slots.remove(&self.key);
            }
            Some(value) => {
                state.used += value.cost();
                state.slots.insert(self.key, Slot::Ready { value, used: false });
                state.order.push_back(self.key);
                state.evict(self.cache.limit);
            }
        }
        drop(state);
        self.cache.made.notify_all();
    }
}

impl<V: Cost> State<V> {
    /// Lets go of the oldest values that were not used since they were last looked at here.
    fn evict(&mut self, limit: usize) {
        while self.used > limit && self.order.len() > 1 {
            let Some(key) = self.order.pop_front() else { return };
            match self.slots.get_mut(&key) {
                Some(Slot::Ready { used, .. }) if *used => {
                    *used = false;
                    self.order.push_back(key);
                }
                Some(Slot::Ready { value, .. }) => {
                    self.used -= value.cost();
                    self.slots.remove(&key);
                }
                Some(Slot::Awaited) | None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    impl Cost for usize {
        fn cost(&self) -> usize {
            10
        }
    }

    #[test]
    fn many_threads_make_a_value_once() {
        let (cache, made) = (Cache::<usize>::new(100), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let value = cache.get_or_make(7, || {
                        std::thread::sleep(std::time::Duration::from_millis(20));
                        made.fetch_add(1, Ordering::Relaxed);
                        Ok::<_, ()>(42)
                    });
                    assert_eq!(*value.unwrap(), 42);
                });
            }
        });
        assert_eq!(made.load(Ordering::Relaxed), 1);
        assert_eq!(cache.get(7).as_deref(), Some(&42));
        assert_eq!(cache.get(8), None);
    }

    #[test]
    fn a_failure_is_not_kept() {
        let cache = Cache::<usize>::new(100);
        assert_eq!(cache.get_or_make(1, || Err("no")), Err("no"));
        assert_eq!(cache.get_or_make(1, || Ok::<_, ()>(5)).as_deref(), Ok(&5));
    }

    #[test]
    fn the_size_is_bounded_and_what_is_used_stays() {
        let cache = Cache::<usize>::new(50);
        for key in 0..1000 {
            cache.get_or_make(key, || Ok::<_, ()>(key as usize)).unwrap();
            assert!(cache.get(0).is_some() || key == 0, "{key}");
            let state = cache.lock();
            assert!(state.used <= 50 && state.slots.len() <= 5 && state.order.len() == state.slots.len());
        }
    }
}
