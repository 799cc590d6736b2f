//! What each call of each architecture comes to: rules are added one by one, then become code.

use super::Instruction;
use super::arch::{Machine, Name, SLOTS, X32_BIT};
use super::code::{Assembler, Layout, Run, Target};
use crate::bail;
use crate::error::Result;
use oci_spec::runtime::{Arch, LinuxSeccompArg, LinuxSeccompOperator};
use std::cmp::Ordering;
use std::ops::Range;

/// The outcome of every call, by architecture and slot.
pub(super) struct Verdicts<'a> {
    machines: &'a [&'static Machine],
    assembler: Assembler,
    default: u32,
    slots: Vec<[Verdict; SLOTS]>,
    /// The highest number that the section names, by architecture.
    highest: [u32; 3],
    rules: Vec<Rule>,
    chains: Vec<Chain>,
    links: Vec<Link>,
}

/// A leaf of the program, or a chain of rules with `CHAIN` added.
type Verdict = u16;
const DEFAULT: Verdict = 0;
const CHAIN: Verdict = 0x8000;

/// The rules with arguments of one call, as a list in `links`.
struct Chain {
    first: u32,
    last: u32,
    length: u32,
}

#[derive(Clone, Copy)]
struct Link {
    rule: u32,
    next: u32,
}

const END: u32 = u32::MAX;

/// So many different rules for one call make a program too long in any case.
const LONGEST_CHAIN: u32 = 4096;

/// A call that matches all conditions gets the action.
struct Rule {
    /// The leaf of the action.
    action: u16,
    /// The conditions where arguments have 64 bits, and where they have 32.
    wide: Conditions,
    narrow: Conditions,
}

impl Rule {
    fn conditions(&self, machine: &Machine) -> &[Condition] {
        let conditions = if machine.wide { &self.wide } else { &self.narrow };
        &conditions.list[..conditions.length as usize]
    }
}

/// Conditions on different arguments, by argument.
#[derive(Clone, Copy)]
struct Conditions {
    length: u8,
    list: [Condition; 6],
}

/// What one argument must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) argument: u8,
    pub(super) operator: Operator,
    pub(super) value: u64,
    /// All ones but for `MaskedEqual`. `value` has no bit outside of it.
    pub(super) mask: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Equal,
    NotEqual,
    MaskedEqual,
    Less,
    LessOrEqual,
    GreaterOrEqual,
    Greater,
}

/// One entry of the section's `syscalls`.
pub(super) struct Entry {
    /// The leaf of the action.
    action: u16,
    /// Its rules, if it has arguments.
    rules: Range<u32>,
}

impl<'a> Verdicts<'a> {
    /// Every call gets the answer `default`.
    pub(super) fn new(machines: &'a [&'static Machine], default: u32) -> Result<Self> {
        let mut assembler = Assembler::new();
        let leaf = assembler.answer(default)?;
        debug_assert_eq!(leaf, DEFAULT);
        Ok(Verdicts {
            machines,
            assembler,
            default,
            slots: vec![[DEFAULT; SLOTS]; machines.len()],
            highest: [0; 3],
            rules: Vec::with_capacity(32),
            chains: Vec::with_capacity(16),
            links: Vec::with_capacity(64),
        })
    }

    /// Reads an entry's action, a `SECCOMP_RET_*` value, and its arguments.
    pub(super) fn entry(&mut self, action: u32, arguments: &[LinuxSeccompArg]) -> Result<Entry> {
        let action = self.assembler.answer(action)?;
        let first = self.rules.len() as u32;
        if let Some(argument) = arguments.iter().find(|argument| argument.index() > 5) {
            bail!("argument index {}: a system call has six arguments, 0 to 5", argument.index());
        }
        let twice = |(at, argument): (usize, &LinuxSeccompArg)| {
            arguments[..at].iter().any(|other| other.index() == argument.index())
        };
        if arguments.iter().enumerate().any(twice) {
            for argument in arguments {
                self.rules.push(Rule::new(action, std::slice::from_ref(argument)));
            }
        } else if !arguments.is_empty() {
            self.rules.push(Rule::new(action, arguments));
        }
        Ok(Entry { action, rules: first..self.rules.len() as u32 })
    }

    /// Applies an entry to a call, on every architecture that has it.
    pub(super) fn add(&mut self, entry: &Entry, name: Name) -> Result<()> {
        for (at, machine) in self.machines.iter().enumerate() {
            let selector = if machine.multiplexed { name.multiplexed() } else { 0 };
            let slot = machine.slot(name);
            if let Some(slot) = slot {
                self.highest[at] = self.highest[at].max(machine.number(slot));
            }
            if entry.action == DEFAULT {
                continue;
            }
            if let Some(slot) = slot {
                if entry.rules.is_empty() {
                    self.settle(at, slot, entry.action);
                }
                for rule in entry.rules.clone() {
                    self.insert(at, slot, rule, name)?;
                }
            }
            match selector {
                0 => {}
                1..=100 => self.multiplex(at, SOCKETCALL, selector, entry, name)?,
                _ => self.multiplex(at, IPC, selector - 100, entry, name)?,
            }
        }
        Ok(())
    }

    /// A rule without arguments, unless there was one before.
    fn settle(&mut self, machine: usize, slot: usize, action: u16) {
        let verdict = &mut self.slots[machine][slot];
        if *verdict == DEFAULT || *verdict >= CHAIN {
            *verdict = action;
        }
    }

    /// Applies an entry to the calls through `slot` whose first argument is `selector`. Conditions
    /// on other arguments stay, as libseccomp leaves them, though there they mean something else.
    fn multiplex(
        &mut self,
        machine: usize,
        slot: usize,
        selector: u8,
        entry: &Entry,
        name: Name,
    ) -> Result<()> {
        if matches!(self.slots[machine][slot], settled if settled != DEFAULT && settled < CHAIN) {
            return Ok(());
        }
        let selected =
            Condition { argument: 0, operator: Operator::Equal, value: selector.into(), mask: u64::MAX };
        let plain = [Conditions::NONE; 2];
        let count = entry.rules.len().max(1);
        for at in 0..count {
            let [wide, narrow] = match entry.rules.clone().nth(at) {
                Some(rule) => [self.rules[rule as usize].wide, self.rules[rule as usize].narrow],
                None => plain,
            };
            let rule =
                Rule { action: entry.action, wide: wide.with(selected), narrow: narrow.with(selected) };
            self.rules.push(rule);
            self.insert(machine, slot, self.rules.len() as u32 - 1, name)?;
        }
        Ok(())
    }

    /// Adds a rule with arguments to a call, as an alternative to those before.
    fn insert(&mut self, machine: usize, slot: usize, rule: u32, name: Name) -> Result<()> {
        let verdict = self.slots[machine][slot];
        if verdict != DEFAULT && verdict < CHAIN {
            return Ok(());
        }
        let of = self.machines[machine];
        let new = &self.rules[rule as usize];
        let conditions = new.conditions(of);
        if conditions.is_empty() {
            self.settle(machine, slot, new.action);
            return Ok(());
        }
        let link = Link { rule, next: END };
        if verdict == DEFAULT {
            if self.chains.len() >= CHAIN as usize {
                bail!("too many calls with argument rules");
            }
            self.slots[machine][slot] = CHAIN + self.chains.len() as u16;
            let at = self.links.len() as u32;
            self.chains.push(Chain { first: at, last: at, length: 1 });
            self.links.push(link);
            return Ok(());
        }
        let chain = &mut self.chains[(verdict - CHAIN) as usize];
        let mut at = chain.first;
        while at != END {
            let old = &self.rules[self.links[at as usize].rule as usize];
            let old_conditions = old.conditions(of);
            if conditions.starts_with(old_conditions)
                && (old.action == new.action || conditions != old_conditions)
            {
                return Ok(()); // The old rule covers it.
            }
            if old.action != new.action && old_conditions.starts_with(conditions) {
                bail!("{}: two actions for the same arguments", name.text());
            }
            at = self.links[at as usize].next;
        }
        if chain.length >= LONGEST_CHAIN {
            bail!("{}: more than {LONGEST_CHAIN} rules for one call", name.text());
        }
        self.links[chain.last as usize].next = self.links.len() as u32;
        chain.last = self.links.len() as u32;
        chain.length += 1;
        self.links.push(link);
        Ok(())
    }

    /// Writes the program.
    pub(super) fn assemble(mut self) -> Result<Vec<Instruction>> {
        let stranger = self.assembler.answer(libc::SECCOMP_RET_KILL_THREAD)?;
        let newer = if passes(self.default) {
            DEFAULT
        } else {
            self.assembler.answer(libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32)?
        };
        self.write_chains()?;
        let mut ways = Vec::with_capacity(3);
        let mut runs = Vec::with_capacity(128);
        // The native architecture is written last and so comes first.
        for at in (0..self.machines.len()).rev() {
            let machine = self.machines[at];
            runs.clear();
            if machine.audit == Arch::ScmpArchX86_64 as u32 {
                let half = |arch| self.machines.iter().position(|m| m.arch == arch);
                let (low, high) = (half(Arch::ScmpArchX86_64), half(Arch::ScmpArchX32));
                if low.max(high) != Some(at) {
                    continue; // Both are one search, written with the later.
                }
                match low {
                    Some(low) => self.runs(low, newer, &mut runs),
                    None => push(&mut runs, 0, stranger),
                }
                match high {
                    Some(high) => self.runs(high, newer, &mut runs),
                    None => {
                        push(&mut runs, X32_BIT, stranger);
                        // A tracer skips a call by making it -1.
                        push(&mut runs, u32::MAX, DEFAULT);
                    }
                }
            } else {
                self.runs(at, newer, &mut runs);
            }
            ways.push((machine.audit, self.assembler.search(&runs)));
        }
        ways.reverse();
        self.assembler.dispatch(&ways, stranger);
        self.assembler.finish()
    }

    /// Appends the runs of an architecture.
    fn runs(&mut self, at: usize, newer: u16, runs: &mut Vec<Run>) {
        let machine = self.machines[at];
        // On s390 a number too high for the kernel arrives as 0, a call that nothing else uses.
        if matches!(machine.arch, Arch::ScmpArchS390 | Arch::ScmpArchS390x)
            && self.highest[at] != 0
            && newer != DEFAULT
        {
            self.slots[at][0] = newer;
        }
        let mut last = DEFAULT;
        push(runs, if machine.base == X32_BIT { X32_BIT } else { 0 }, DEFAULT);
        for (slot, leaf) in self.slots[at].iter().enumerate() {
            if *leaf != last {
                last = *leaf;
                push(runs, machine.number(slot), last);
            }
        }
        if self.highest[at] != 0 {
            push(runs, self.highest[at] + 1, newer);
        }
    }

    /// Writes every chain in use, equal ones once, and puts its leaf into the slots.
    fn write_chains(&mut self) -> Result<()> {
        let mut written: Vec<(bool, Vec<u32>, u16)> = Vec::with_capacity(self.chains.len());
        for at in 0..self.machines.len() {
            if self.chains.is_empty() {
                break;
            }
            let machine = self.machines[at];
            let layout = Layout { wide: machine.wide, little_endian: machine.little_endian() };
            for slot in 0..SLOTS {
                let Some(chain) = self.slots[at][slot].checked_sub(CHAIN) else { continue };
                let order = self.order(chain, machine);
                let same = written.iter().find(|(wide, other, _)| *wide == machine.wide && *other == order);
                self.slots[at][slot] = match same {
                    Some((_, _, leaf)) => *leaf,
                    None => {
                        let leaf = self.write_chain(&order, machine, layout)?;
                        written.push((machine.wide, order, leaf));
                        leaf
                    }
                };
            }
        }
        Ok(())
    }

    fn write_chain(&mut self, order: &[u32], machine: &Machine, layout: Layout) -> Result<u16> {
        let rule = |at: usize| &self.rules[order[at] as usize];
        let mut next = Target::Leaf(DEFAULT);
        let mut end = order.len();
        while end > 0 {
            let mut start = end - 1;
            if let Some((argument, upper, _)) = case(rule(start), machine) {
                let alike = |at| case(rule(at), machine).is_some_and(|(a, u, _)| (a, u) == (argument, upper));
                while start > 0 && alike(start - 1) {
                    start -= 1;
                }
                let cases = (start..end).filter_map(|at| Some((case(rule(at), machine)?.2, rule(at).action)));
                next = self.assembler.cases(argument, layout, cases, next);
            } else {
                let action = Target::Leaf(rule(start).action);
                next = self.assembler.conditions(rule(start).conditions(machine), layout, action, next);
            }
            self.assembler.check_length()?;
            end = start;
        }
        self.assembler.block(next)
    }

    /// The rules of a chain in the order in which they are tried: libseccomp's, which decides
    /// between different actions. Later arguments come first; then equality, less, greater; then
    /// the value, higher ones first (lower ones for less). Rules whose first conditions are the
    /// same stay together and are ordered by the next.
    fn order(&self, chain: u16, machine: &Machine) -> Vec<u32> {
        let conditions = |rule: u32| self.rules[rule as usize].conditions(machine);
        let half_of = |rule: u32, depth: usize| Half::all(conditions(rule), machine.wide).nth(depth);
        let chain = &self.chains[chain as usize];
        let mut order: Vec<u32> = Vec::with_capacity(chain.length as usize);
        let mut at = chain.first;
        while at != END {
            let link = self.links[at as usize];
            at = link.next;
            let new = conditions(link.rule);
            let mut among = 0..order.len();
            for (depth, half) in Half::all(new, machine.wide).enumerate() {
                let other = |at: usize| half_of(order[at], depth);
                let alike = |at: usize| other(at).is_some_and(|other| other.same_test(&half));
                let mut place = among.start;
                while place < among.end && !alike(place) {
                    // What shares a test stands where the rule that came first put it.
                    let shared = |at: &usize| match (other(place), other(*at)) {
                        (Some(one), Some(two)) => one.same_test(&two),
                        _ => false,
                    };
                    let end = place + (place..among.end).take_while(shared).count().max(1);
                    let first = (place..end).min_by_key(|at| order[*at]).and_then(other);
                    if first.is_none_or(|first| half.tried_before(&first)) {
                        break;
                    }
                    place = end;
                }
                among = place..place + (place..among.end).take_while(|at| alike(*at)).count();
            }
            order.insert(among.end, link.rule);
        }
        order
    }
}

const SOCKETCALL: usize = 102;
const IPC: usize = 117;

/// A rule that only asks whether one argument has one value: its number, the upper half and
/// the value.
fn case(rule: &Rule, machine: &Machine) -> Option<(u8, u32, u64)> {
    match rule.conditions(machine) {
        [Condition { argument, operator: Operator::Equal, value, .. }] => {
            Some((*argument, (*value >> 32) as u32, *value))
        }
        _ => None,
    }
}

/// Whether calls that have this answer by default may proceed.
fn passes(answer: u32) -> bool {
    matches!(
        answer & libc::SECCOMP_RET_ACTION_FULL,
        libc::SECCOMP_RET_ALLOW | libc::SECCOMP_RET_LOG | libc::SECCOMP_RET_TRACE
    )
}

/// Appends a run, unless it only goes on with the last; replaces one that starts at the same number.
fn push(runs: &mut Vec<Run>, start: u32, leaf: u16) {
    if runs.last().is_some_and(|last| last.start == start) {
        runs.pop();
    }
    if runs.last().is_none_or(|last| last.leaf != leaf) {
        runs.push(Run { start, leaf });
    }
}

/// Half a condition: what libseccomp tests at once and sorts by.
#[derive(Clone, Copy)]
struct Half {
    argument: u8,
    upper: bool,
    operator: Operator,
    value: u32,
    mask: u32,
}

impl Half {
    /// The halves of conditions, upper ones first; only lower ones where arguments have 32 bits.
    fn all(conditions: &[Condition], wide: bool) -> impl Iterator<Item = Half> {
        let halves = if wide { &[true, false][..] } else { &[false] };
        let half = |condition: &Condition, upper: bool| {
            let Condition { argument, operator, value, mask } = *condition;
            let shift = if upper { 32 } else { 0 };
            Half { argument, upper, operator, value: (value >> shift) as u32, mask: (mask >> shift) as u32 }
        };
        conditions.iter().flat_map(move |condition| halves.iter().map(move |upper| half(condition, *upper)))
    }

    /// Whether one comparison answers both.
    fn same_test(&self, other: &Half) -> bool {
        use Operator::*;
        const EQUAL: u8 = 0;
        const MASKED: u8 = 1;
        const AT_LEAST: u8 = 2;
        const ABOVE: u8 = 3;
        let test = |half: &Half| match half.operator {
            Equal | NotEqual => EQUAL,
            MaskedEqual => MASKED,
            Less | GreaterOrEqual if !half.upper => AT_LEAST,
            _ => ABOVE,
        };
        (self.argument, test(self), self.value, self.mask)
            == (other.argument, test(other), other.value, other.mask)
    }

    fn tried_before(&self, other: &Half) -> bool {
        use Operator::*;
        let kind = |half: &Half| match half.operator {
            Equal | NotEqual | MaskedEqual => 0,
            Less | LessOrEqual => 1,
            GreaterOrEqual | Greater => 2,
        };
        let values = match kind(self) {
            1 => self.value.cmp(&other.value),
            _ => other.value.cmp(&self.value),
        };
        other.argument.cmp(&self.argument).then(kind(self).cmp(&kind(other))).then(values) == Ordering::Less
    }
}

impl Rule {
    fn new(action: u16, arguments: &[LinuxSeccompArg]) -> Self {
        let mut wide = Conditions::NONE;
        for argument in arguments {
            wide.push(Condition::new(argument));
        }
        wide.list[..wide.length as usize].sort_unstable_by_key(|condition| condition.argument);
        let mut narrow = Conditions::NONE;
        for condition in &wide.list[..wide.length as usize] {
            narrow.push(Condition {
                value: condition.value & 0xffff_ffff,
                mask: condition.mask & 0xffff_ffff,
                ..*condition
            });
        }
        Rule { action, wide, narrow }
    }
}

impl Conditions {
    const NONE: Conditions = Conditions {
        length: 0,
        list: [Condition { argument: 0, operator: Operator::Equal, value: 0, mask: 0 }; 6],
    };

    /// Adds a condition, unless every value meets it.
    fn push(&mut self, condition: Condition) {
        if condition.mask != 0 {
            self.list[self.length as usize] = condition;
            self.length += 1;
        }
    }

    /// These conditions, with one on the first argument instead of any that there was.
    fn with(self, first: Condition) -> Self {
        let mut with = Conditions::NONE;
        with.push(first);
        for condition in &self.list[..self.length as usize] {
            if condition.argument != first.argument {
                with.push(*condition);
            }
        }
        with
    }
}

impl Condition {
    fn new(argument: &LinuxSeccompArg) -> Self {
        use LinuxSeccompOperator::*;
        let operator = match argument.op() {
            ScmpCmpNe => Operator::NotEqual,
            ScmpCmpLt => Operator::Less,
            ScmpCmpLe => Operator::LessOrEqual,
            ScmpCmpEq => Operator::Equal,
            ScmpCmpGe => Operator::GreaterOrEqual,
            ScmpCmpGt => Operator::Greater,
            ScmpCmpMaskedEq => Operator::MaskedEqual,
        };
        let (mask, value) = match operator {
            Operator::MaskedEqual => (argument.value(), argument.value_two().unwrap_or_default()),
            _ => (u64::MAX, argument.value()),
        };
        Condition { argument: argument.index() as u8, operator, value: value & mask, mask }
    }
}
