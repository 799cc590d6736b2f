//! The outcome of each call on each architecture. The section's entries are added one by one, then become code.

use super::arch::{Machine, Name, SLOTS, X32_BIT};
use super::code::{Assembler, JumpTarget, Layout, Run};
use super::rules::Rules;
use super::{
    Instruction, SECCOMP_RET_ACTION_FULL, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, SECCOMP_RET_KILL_THREAD,
    SECCOMP_RET_LOG, SECCOMP_RET_TRACE,
};
use crate::error::{Result, bail};
use oci_spec::runtime::{Arch, LinuxSeccompArg};
use std::ops::Range;

/// The outcome of every call, by architecture and slot.
pub(super) struct Verdicts<'a> {
    machines: &'a [&'static Machine],
    assembler: Assembler,
    default: u32,
    /// No kernel runs more than three architectures.
    slots: [[Verdict; SLOTS]; 3],
    /// The highest number that the section names, by architecture; 0 if none.
    highest: [u32; 3],
    rules: Rules,
    /// For each call that has rules with arguments, the place in `links` of the first.
    chains: Vec<u32>,
    links: Vec<ChainLink>,
}

/// A leaf of the program, or a chain of rules with `CHAIN` added.
type Verdict = u16;
const DEFAULT: Verdict = 0;
const CHAIN: Verdict = 0x8000;

/// A rule with arguments of a call, and the place in `links` of its next.
#[derive(Clone, Copy)]
struct ChainLink {
    rule: u32,
    next: u32,
}

/// A chain of which the program has the code.
struct WrittenChain {
    /// The chain was written for arguments of 64 bits.
    wide: bool,
    chain: u16,
    leaf: u16,
}

/// The end of a list.
const END: u32 = u32::MAX;

/// More different rules for one call make a program too long in any case (BPF_MAXINSNS).
const LONGEST_CHAIN: u32 = 4096;

/// The slots of socketcall(2) and ipc(2), which are the same on every architecture that has them.
const SOCKETCALL: usize = 102;
const IPC: usize = 117;

/// An entry of the section's `syscalls`, less the names that it is for.
pub(super) struct CompiledEntry {
    /// The leaf of the action.
    action: u16,
    /// Its rules, if it has arguments.
    rules: Range<u32>,
}

impl<'a> Verdicts<'a> {
    /// Every call gets the answer `default`, a `SECCOMP_RET_*` value.
    pub(super) fn new(machines: &'a [&'static Machine], default: u32) -> Result<Self> {
        let mut assembler = Assembler::new();
        let leaf = assembler.answer(default)?;
        debug_assert_eq!(leaf, DEFAULT);
        Ok(Verdicts {
            machines,
            assembler,
            default,
            slots: [[DEFAULT; SLOTS]; 3],
            highest: [0; 3],
            rules: Rules::new(),
            chains: Vec::with_capacity(16),
            links: Vec::with_capacity(64),
        })
    }

    /// Reads an entry's action, a `SECCOMP_RET_*` value, and its arguments.
    pub(super) fn entry(&mut self, action: u32, arguments: &[LinuxSeccompArg]) -> Result<CompiledEntry> {
        let action = self.assembler.answer(action)?;
        let first = self.rules.count();
        if let Some(argument) = arguments.iter().find(|argument| argument.index() > 5) {
            bail!("argument index {}: a system call has six arguments, 0 to 5", argument.index());
        }
        let twice = |(at, argument): (usize, &LinuxSeccompArg)| {
            arguments[..at].iter().any(|other| other.index() == argument.index())
        };
        if arguments.iter().enumerate().any(twice) {
            for argument in arguments {
                self.rules.add(action, std::slice::from_ref(argument));
            }
        } else if !arguments.is_empty() {
            self.rules.add(action, arguments);
        }
        Ok(CompiledEntry { action, rules: first..self.rules.count() })
    }

    /// Applies an entry to a call, on every architecture that has it.
    pub(super) fn add(&mut self, entry: &CompiledEntry, name: Name) -> Result<()> {
        for (at, machine) in self.machines.iter().enumerate() {
            if let Some(slot) = machine.slot(name) {
                self.highest[at] = self.highest[at].max(machine.number(slot));
                if entry.action != DEFAULT && entry.rules.is_empty() {
                    self.settle(at, slot, entry.action);
                } else if entry.action != DEFAULT {
                    for rule in entry.rules.clone() {
                        self.insert(at, slot, rule, name)?;
                    }
                }
            }
            if machine.multiplexed {
                match name.multiplexed() {
                    0 => {}
                    selector @ 1..=100 => self.multiplex(at, SOCKETCALL, selector, entry, name)?,
                    selector => self.multiplex(at, IPC, selector - 100, entry, name)?,
                }
            }
        }
        Ok(())
    }

    /// Gives a call an outcome whatever its arguments are, unless it has one already: the first such rule counts.
    fn settle(&mut self, machine: usize, slot: usize, action: u16) {
        if !self.is_settled(machine, slot) {
            self.slots[machine][slot] = action;
        }
    }

    fn is_settled(&self, machine: usize, slot: usize) -> bool {
        (DEFAULT + 1..CHAIN).contains(&self.slots[machine][slot])
    }

    /// Applies an entry to the calls through `slot` whose first argument is `selector`. Conditions
    /// on other arguments stay, as libseccomp leaves them, though there they mean something else.
    fn multiplex(
        &mut self,
        at: usize,
        slot: usize,
        selector: u8,
        entry: &CompiledEntry,
        name: Name,
    ) -> Result<()> {
        let machine = self.machines[at];
        self.highest[at] = self.highest[at].max(machine.number(slot));
        if entry.action == DEFAULT || self.is_settled(at, slot) {
            return Ok(());
        }
        let none = entry.rules.is_empty().then_some(None);
        for rule in entry.rules.clone().map(Some).chain(none) {
            let rule = self.rules.select(selector, entry.action, rule, machine.wide);
            self.insert(at, slot, rule, name)?;
        }
        Ok(())
    }

    /// Adds a rule with arguments to a call, as an alternative to those before.
    fn insert(&mut self, machine: usize, slot: usize, rule: u32, name: Name) -> Result<()> {
        if self.is_settled(machine, slot) {
            return Ok(());
        }
        let wide = self.machines[machine].wide;
        let action = self.rules.action(rule);
        if self.rules.conditions(rule, wide).is_empty() {
            self.settle(machine, slot, action);
            return Ok(());
        }
        let link = self.links.len() as u32;
        let Some(chain) = self.slots[machine][slot].checked_sub(CHAIN) else {
            self.slots[machine][slot] = CHAIN + self.chains.len() as u16;
            self.chains.push(link);
            self.links.push(ChainLink { rule, next: END });
            return Ok(());
        };
        // Of two rules with one action, one that asks for more than the other changes nothing.
        if self.rules_of(chain).any(|old| self.rules.covers(old, rule, wide)) {
            return Ok(());
        }
        let (mut last, mut at, mut length) = (END, self.chains[chain as usize], 0);
        while at != END {
            let ChainLink { rule: old, next } = self.links[at as usize];
            if self.rules.covers(rule, old, wide) {
                self.link(chain, last, next);
            } else {
                (last, length) = (at, length + 1);
            }
            at = next;
        }
        for old in self.rules_of(chain).filter(|old| self.rules.action(*old) != action) {
            let (old, new) = (self.rules.conditions(old, wide), self.rules.conditions(rule, wide));
            if old.starts_with(new) {
                bail!("{}: two actions for the same arguments", name.text());
            }
            if new.starts_with(old) {
                return Ok(());
            }
        }
        if length == LONGEST_CHAIN {
            bail!("{}: more than {LONGEST_CHAIN} rules for one call", name.text());
        }
        self.links.push(ChainLink { rule, next: END });
        self.link(chain, last, link);
        Ok(())
    }

    /// Puts the link `next` into a chain behind `last`, or at its start if that is `END`.
    fn link(&mut self, chain: u16, last: u32, next: u32) {
        match last {
            END => self.chains[chain as usize] = next,
            last => self.links[last as usize].next = next,
        }
    }

    /// The rules of a chain, in the order in which they were added.
    fn rules_of(&self, chain: u16) -> impl Iterator<Item = u32> + Clone {
        let first = self.links.get(self.chains[chain as usize] as usize);
        let next = |link: &&ChainLink| self.links.get(link.next as usize);
        std::iter::successors(first, next).map(|link| link.rule)
    }

    /// Writes the program.
    pub(super) fn assemble(&mut self) -> Result<Vec<Instruction>> {
        let stranger = self.assembler.answer(SECCOMP_RET_KILL_THREAD)?;
        let newer = if passes(self.default) {
            DEFAULT
        } else {
            self.assembler.answer(SECCOMP_RET_ERRNO | self.machines[0].enosys())?
        };
        self.write_chains()?;
        let mut ways = Vec::with_capacity(3);
        let mut runs = Vec::with_capacity(128);
        // Code is written backwards: the native architecture is written last, so its calls are found first.
        for at in (0..self.machines.len()).rev() {
            let machine = self.machines[at];
            runs.clear();
            if machine.audit == Arch::ScmpArchX86_64 as u32 {
                if self.machines[..at].iter().any(|other| other.audit == machine.audit) {
                    continue; // x86_64 and x32 are one search.
                }
                let half = |arch| self.machines.iter().position(|machine| machine.arch == arch);
                let (low, high) = (half(Arch::ScmpArchX86_64), half(Arch::ScmpArchX32));
                match low {
                    Some(low) => self.runs(low, newer, &mut runs),
                    None => push(&mut runs, 0, stranger),
                }
                match high {
                    Some(high) => self.runs(high, newer, &mut runs),
                    None => {
                        push(&mut runs, X32_BIT, stranger);
                        // A tracer skips a call by setting its number to -1 (ptrace(2)), which must not kill.
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
        let highest = self.highest[at];
        // On s390 the kernel passes a number that is too high for it as 0, which is no other call's.
        if matches!(machine.arch, Arch::ScmpArchS390 | Arch::ScmpArchS390x)
            && highest != 0
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
        if highest != 0 {
            push(runs, highest + 1, newer);
        }
    }

    /// Writes every chain in use, equal ones once, and puts its leaf into the slots.
    fn write_chains(&mut self) -> Result<()> {
        if self.chains.is_empty() {
            return Ok(());
        }
        let mut written: Vec<WrittenChain> = Vec::with_capacity(self.chains.len());
        let mut order = Vec::with_capacity(16);
        for at in 0..self.machines.len() {
            let machine = self.machines[at];
            for slot in 0..SLOTS {
                let Some(chain) = self.slots[at][slot].checked_sub(CHAIN) else { continue };
                let same = |other: &&WrittenChain| {
                    other.wide == machine.wide && self.rules_of(other.chain).eq(self.rules_of(chain))
                };
                let leaf = match written.iter().find(same) {
                    Some(other) => other.leaf,
                    None => {
                        self.rules.sort(self.rules_of(chain), machine.wide, &mut order);
                        let leaf = self.write_chain(&order, machine)?;
                        written.push(WrittenChain { wide: machine.wide, chain, leaf });
                        leaf
                    }
                };
                self.slots[at][slot] = leaf;
            }
        }
        Ok(())
    }

    /// Writes the rules `order` of a call: the first that matches counts.
    fn write_chain(&mut self, order: &[u32], machine: &Machine) -> Result<u16> {
        let layout = Layout { wide: machine.wide, little_endian: machine.little_endian() };
        let rules = &self.rules;
        let case = |rule: u32| rules.case(rule, machine.wide);
        let mut next = JumpTarget::Leaf(DEFAULT);
        // Rules that compare one argument with values of the same upper half share the test of that half.
        for group in order.chunk_by(|one, two| case(*one).is_some() && case(*one) == case(*two)).rev() {
            let conditions = |rule: u32| rules.conditions(rule, machine.wide);
            next = match case(group[0]) {
                Some((argument, _)) => {
                    let cases = group.iter().map(|rule| (conditions(*rule)[0].value, rules.action(*rule)));
                    self.assembler.cases(argument, layout, cases, next)
                }
                None => {
                    let yes = JumpTarget::Leaf(rules.action(group[0]));
                    self.assembler.conditions(conditions(group[0]), layout, yes, next)
                }
            };
            self.assembler.check_length()?;
        }
        self.assembler.block(next)
    }
}

/// Whether calls that have this answer by default may proceed.
fn passes(answer: u32) -> bool {
    matches!(answer & SECCOMP_RET_ACTION_FULL, SECCOMP_RET_ALLOW | SECCOMP_RET_LOG | SECCOMP_RET_TRACE)
}

/// Appends a run, unless it only goes on with the last; replaces one that starts at the same number.
fn push(runs: &mut Vec<Run>, start: u32, leaf: u16) {
    debug_assert!(runs.last().is_none_or(|last| last.start <= start));
    if runs.last().is_some_and(|last| last.start == start) {
        runs.pop();
    }
    if runs.last().is_none_or(|last| last.leaf != leaf) {
        runs.push(Run { start, leaf });
    }
}
