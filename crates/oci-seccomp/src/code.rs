//! Classic BPF, written from its last instruction to its first.
//!
//! Jumps of classic BPF only go forward. Written backwards, the target of each jump is known when the jump is written, and so
//! is its distance: a test can jump over at most 255 instructions, and needs a jump of its own for more.

use super::Instruction;
use super::rules::{Condition, Operator};
use crate::error::{Result, bail};

/// BPF_MAXINSNS (linux/bpf_common.h): the kernel takes no longer program.
const LONGEST: usize = 4096;

// linux/bpf_common.h: class, size or operation, mode or source.
const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const AND: u16 = 0x54; // BPF_ALU | BPF_AND | BPF_K
const RETURN: u16 = 0x06; // BPF_RET | BPF_K
const JUMP: u16 = 0x05; // BPF_JMP | BPF_JA
const EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const ABOVE: u16 = 0x25; // BPF_JMP | BPF_JGT | BPF_K
const AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
const ANY_BIT: u16 = 0x45; // BPF_JMP | BPF_JSET | BPF_K

// struct seccomp_data (linux/seccomp.h).
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

/// Where a jump goes.
#[derive(Clone, Copy)]
pub(super) enum JumpTarget {
    /// An outcome, wherever it is or will be written.
    Leaf(u16),
    /// An instruction, counted from the end of the program.
    At(usize),
}

/// An outcome that many jumps share: a return, or the argument checks of a call.
struct Leaf {
    /// What a return returns.
    answer: Option<u32>,
    /// Where its copy nearest to the program's start is, if there is one yet: a return, checks, or a jump to them.
    at: Option<usize>,
}

/// A range of call numbers with one outcome: from `start` up to the next run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) start: u32,
    pub(super) leaf: u16,
}

/// A range of call numbers from `start` up to the next block, which have one outcome but for a few single ones.
#[derive(Clone, Copy)]
struct Block {
    start: u32,
    rest: u16,
    /// The single numbers: every second run from this one on.
    first: u16,
    /// How many they are.
    count: u16,
}

/// Single numbers of a block at most. The search ends in a comparison with each, which is one instruction. To divide the
/// range at a number instead costs two.
const APART: u16 = 3;

/// A program in the making.
pub(super) struct Assembler {
    /// Last instruction first.
    code: Vec<Instruction>,
    leaves: Vec<Leaf>,
}

impl Assembler {
    /// An empty program.
    pub(super) fn new() -> Self {
        Assembler { code: Vec::with_capacity(512), leaves: Vec::with_capacity(16) }
    }

    /// The leaf that returns `answer`.
    pub(super) fn answer(&mut self, answer: u32) -> Result<u16> {
        let known = self.leaves.iter().position(|leaf| leaf.answer == Some(answer));
        known.map_or_else(|| self.leaf(Leaf { answer: Some(answer), at: None }), |at| Ok(at as u16))
    }

    /// Makes a leaf of the code that `target` starts.
    pub(super) fn block(&mut self, target: JumpTarget) -> Result<u16> {
        match target {
            JumpTarget::Leaf(leaf) => Ok(leaf),
            JumpTarget::At(at) => self.leaf(Leaf { answer: None, at: Some(at) }),
        }
    }

    fn leaf(&mut self, leaf: Leaf) -> Result<u16> {
        if self.leaves.len() >= LONGEST {
            bail!("the filter has more than {LONGEST} instructions");
        }
        self.leaves.push(leaf);
        Ok(self.leaves.len() as u16 - 1)
    }

    /// Writes a binary search for the call's number. `runs` are in order, begin with number 0, and are not empty.
    pub(super) fn search(&mut self, runs: &[Run]) -> JumpTarget {
        let root = self.tree(runs, &blocks(runs));
        self.before(root, NUMBER)
    }

    fn tree(&mut self, runs: &[Run], blocks: &[Block]) -> JumpTarget {
        if let [block] = blocks {
            let rest = JumpTarget::Leaf(block.rest);
            let apart = runs[block.first as usize..].iter().step_by(2).take(block.count as usize);
            return apart
                .rev()
                .fold(rest, |no, run| self.branch(EQUAL, run.start, JumpTarget::Leaf(run.leaf), no));
        }
        let (low, high) = blocks.split_at(blocks.len() / 2);
        let high_root = self.tree(runs, high);
        let low_root = self.tree(runs, low);
        self.branch(AT_LEAST, high[0].start, high_root, low_root)
    }

    /// Writes the program's beginning: `ways` lists AUDIT_ARCH values and what handles them.
    pub(super) fn dispatch(&mut self, ways: &[(u32, JumpTarget)], other: u16) {
        let root = ways
            .iter()
            .rev()
            .fold(JumpTarget::Leaf(other), |no, (audit, yes)| self.branch(EQUAL, *audit, *yes, no));
        self.before(root, ARCHITECTURE);
    }

    /// The program, first instruction first.
    pub(super) fn finish(&mut self) -> Result<Vec<Instruction>> {
        self.check_length()?;
        self.code.reverse();
        Ok(std::mem::take(&mut self.code))
    }

    /// Fails once the program is too long for the kernel.
    pub(super) fn check_length(&self) -> Result<()> {
        if self.code.len() > LONGEST {
            bail!("the filter has more than {LONGEST} instructions");
        }
        Ok(())
    }

    /// Writes the checks of the arguments `conditions`, all of which lead to `yes`.
    pub(super) fn conditions(
        &mut self,
        conditions: &[Condition],
        layout: Layout,
        yes: JumpTarget,
        no: JumpTarget,
    ) -> JumpTarget {
        conditions.iter().rev().fold(yes, |yes, condition| self.condition(condition, layout, yes, no))
    }

    /// Writes a choice by one argument: `cases` are values with one upper half, and their outcomes.
    pub(super) fn cases(
        &mut self,
        argument: u8,
        layout: Layout,
        cases: impl DoubleEndedIterator<Item = (u64, u16)>,
        no: JumpTarget,
    ) -> JumpTarget {
        let mut upper = 0;
        let lower = cases.rev().fold(no, |no, (value, leaf)| {
            upper = (value >> 32) as u32;
            self.branch(EQUAL, value as u32, JumpTarget::Leaf(leaf), no)
        });
        let lower = self.before(lower, layout.lower(argument));
        if !layout.wide {
            return lower;
        }
        let both = self.branch(EQUAL, upper, lower, no);
        self.before(both, layout.upper(argument))
    }

    fn condition(
        &mut self,
        condition: &Condition,
        layout: Layout,
        yes: JumpTarget,
        no: JumpTarget,
    ) -> JumpTarget {
        let Condition { argument, operator, value, mask } = *condition;
        let (upper, lower) = ((value >> 32) as u32, value as u32);
        let lower_offset = layout.lower(argument);
        let upper_offset = layout.upper(argument);
        // NE, LT and LE are EQ, GE and GT with the targets exchanged.
        let (yes, no) = match operator {
            Operator::NotEqual | Operator::Less | Operator::LessOrEqual => (no, yes),
            _ => (yes, no),
        };
        match operator {
            Operator::Equal | Operator::NotEqual => {
                let test = self.branch(EQUAL, lower, yes, no);
                let test = self.before(test, lower_offset);
                if !layout.wide {
                    return test;
                }
                let test = self.branch(EQUAL, upper, test, no);
                self.before(test, upper_offset)
            }
            Operator::Less | Operator::LessOrEqual | Operator::GreaterOrEqual | Operator::Greater => {
                let above = matches!(operator, Operator::Greater | Operator::LessOrEqual);
                let test = self.branch(if above { ABOVE } else { AT_LEAST }, lower, yes, no);
                let mut test = self.before(test, lower_offset);
                if !layout.wide {
                    return test;
                }
                // Where the upper half of the value is 0, an upper half that is not above it equals it.
                if upper != 0 {
                    test = self.branch(EQUAL, upper, test, no);
                }
                let test = self.branch(ABOVE, upper, yes, test);
                self.before(test, upper_offset)
            }
            Operator::MaskedEqual => {
                let test = self.masked(lower, mask as u32, lower_offset, yes, no);
                if layout.wide {
                    self.masked(upper, (mask >> 32) as u32, upper_offset, test, no)
                } else {
                    test
                }
            }
        }
    }

    fn masked(&mut self, value: u32, mask: u32, offset: u32, yes: JumpTarget, no: JumpTarget) -> JumpTarget {
        let test = match (value, mask) {
            (_, 0) => return yes,
            (0, _) => self.branch(ANY_BIT, mask, no, yes),
            (_, u32::MAX) => self.branch(EQUAL, value, yes, no),
            _ if value == mask && mask.is_power_of_two() => self.branch(ANY_BIT, mask, yes, no),
            _ => {
                let test = self.branch(EQUAL, value, yes, no);
                self.push(AND, 0, 0, mask);
                self.after(test)
            }
        };
        self.before(test, offset)
    }

    /// Writes a load of a word of `seccomp_data` before the test that was written last.
    fn before(&mut self, test: JumpTarget, offset: u32) -> JumpTarget {
        match test {
            JumpTarget::Leaf(_) => test,
            JumpTarget::At(_) => {
                self.push(LOAD, 0, 0, offset);
                self.after(test)
            }
        }
    }

    /// The instruction written last; `test` is the one after it.
    fn after(&self, test: JumpTarget) -> JumpTarget {
        debug_assert!(matches!(test, JumpTarget::At(at) if at + 2 == self.code.len()));
        JumpTarget::At(self.code.len() - 1)
    }

    /// Writes a test of the word loaded last.
    fn branch(&mut self, test: u16, value: u32, mut yes: JumpTarget, mut no: JumpTarget) -> JumpTarget {
        loop {
            match (self.distance(yes), self.distance(no)) {
                (Some(jt), Some(jf)) => {
                    self.push(test, jt, jf, value);
                    return JumpTarget::At(self.code.len() - 1);
                }
                (None, _) => yes = self.fetch(yes),
                (_, None) => no = self.fetch(no),
            }
        }
    }

    /// How far `target` is from the next instruction to write, if a test can jump there.
    fn distance(&self, target: JumpTarget) -> Option<u8> {
        let at = match target {
            JumpTarget::Leaf(leaf) => self.leaves[leaf as usize].at?,
            JumpTarget::At(at) => at,
        };
        u8::try_from(self.code.len() - at - 1).ok()
    }

    /// Brings `target` within the reach of the test that is written next, by another copy of a return or by a long jump. A
    /// test always jumps, so these may stand right behind it; behind a load they could not.
    fn fetch(&mut self, target: JumpTarget) -> JumpTarget {
        let next = self.code.len();
        let (answer, at) = match target {
            JumpTarget::Leaf(leaf) => {
                let leaf = &mut self.leaves[leaf as usize];
                (leaf.answer, leaf.at.replace(next))
            }
            JumpTarget::At(at) => (None, Some(at)),
        };
        match (answer, at) {
            (Some(answer), _) => self.push(RETURN, 0, 0, answer),
            (None, at) => self.push(JUMP, 0, 0, (next - at.unwrap_or_default() - 1) as u32),
        }
        match target {
            JumpTarget::Leaf(_) => target,
            JumpTarget::At(_) => JumpTarget::At(next),
        }
    }

    fn push(&mut self, code: u16, jt: u8, jf: u8, k: u32) {
        self.code.push(Instruction { code, jt, jf, k });
    }
}

/// How a call's arguments lie in `seccomp_data`.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    /// Both halves of an argument count.
    pub(super) wide: bool,
    /// The lower half comes first.
    pub(super) little_endian: bool,
}

impl Layout {
    fn lower(self, argument: u8) -> u32 {
        ARGUMENTS + 8 * argument as u32 + if self.little_endian { 0 } else { 4 }
    }

    fn upper(self, argument: u8) -> u32 {
        ARGUMENTS + 8 * argument as u32 + if self.little_endian { 4 } else { 0 }
    }
}

/// Gathers runs into blocks, from the lowest number on.
fn blocks(runs: &[Run]) -> Vec<Block> {
    let single = |at: usize| runs.get(at + 1).is_some_and(|next| next.start == runs[at].start + 1);
    let resumes = |at: usize, leaf: u16| runs.get(at + 1).is_some_and(|next| next.leaf == leaf);
    let mut blocks = Vec::with_capacity(runs.len() / 2 + 1);
    let mut at = 0;
    while at < runs.len() {
        let mut block = Block { start: runs[at].start, rest: runs[at].leaf, first: at as u16 + 1, count: 0 };
        // The first number of a block may be a single one.
        if single(at) && !(single(at + 1) && resumes(at + 1, runs[at].leaf)) {
            block = Block { rest: runs[at + 1].leaf, first: at as u16, count: 1, ..block };
            at += 1;
        }
        at += 1;
        while block.count < APART && at < runs.len() && single(at) && resumes(at, block.rest) {
            block.count += 1;
            at += 2;
        }
        blocks.push(block);
    }
    blocks
}
