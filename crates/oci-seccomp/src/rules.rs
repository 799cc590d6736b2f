//! Rules with arguments: what they ask, and which of several comes first.

use oci_spec::runtime::{LinuxSeccompArg, LinuxSeccompOperator};
use std::cmp::Ordering;
use std::ops::Range;

/// Every rule of a section, by the order in which they were read.
pub(super) struct Rules {
    rules: Vec<Rule>,
    conditions: Vec<Condition>,
}

/// A call that matches all conditions gets the action.
struct Rule {
    /// The leaf of the action.
    action: u16,
    /// The conditions where arguments have 64 bits, by argument, in `Rules::conditions`.
    wide: Range<u32>,
    /// The conditions where arguments have 32 bits.
    narrow: Range<u32>,
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

impl Rules {
    pub(super) fn new() -> Self {
        Rules { rules: Vec::with_capacity(64), conditions: Vec::with_capacity(80) }
    }

    /// How many rules there are: the number of the next.
    pub(super) fn count(&self) -> u32 {
        self.rules.len() as u32
    }

    /// The leaf of a rule's action.
    pub(super) fn action(&self, rule: u32) -> u16 {
        self.rules[rule as usize].action
    }

    /// The conditions of a rule, by argument. None at all: the rule is for every such call.
    pub(super) fn conditions(&self, rule: u32, wide: bool) -> &[Condition] {
        let rule = &self.rules[rule as usize];
        let range = if wide { &rule.wide } else { &rule.narrow };
        &self.conditions[range.start as usize..range.end as usize]
    }

    /// Whether a rule has the action of another, and matches wherever that one does.
    pub(super) fn covers(&self, rule: u32, other: u32, wide: bool) -> bool {
        let others = self.conditions(other, wide);
        self.action(rule) == self.action(other)
            && self.conditions(rule, wide).iter().all(|condition| others.contains(condition))
    }

    /// Adds a rule. A condition that every value meets is none.
    pub(super) fn add(&mut self, action: u16, arguments: &[LinuxSeccompArg]) {
        let start = self.conditions.len();
        self.conditions.extend(arguments.iter().map(Condition::new).filter(|condition| condition.mask != 0));
        let middle = self.conditions.len();
        self.conditions[start..].sort_unstable_by_key(|condition| condition.argument);
        for at in start..middle {
            let narrow = self.conditions[at].narrow();
            if narrow.mask != 0 {
                self.conditions.push(narrow);
            }
        }
        let wide = start as u32..middle as u32;
        let narrow = middle as u32..self.conditions.len() as u32;
        self.rules.push(Rule { action, wide, narrow });
    }

    /// Adds a rule like `rule`, or one without conditions, for calls whose first argument is
    /// `selector`, whatever `rule` says of that argument. Returns its number.
    pub(super) fn select(&mut self, selector: u8, action: u16, rule: Option<u32>, wide: bool) -> u32 {
        let start = self.conditions.len() as u32;
        let value = selector.into();
        self.conditions.push(Condition { argument: 0, operator: Operator::Equal, value, mask: u64::MAX });
        let others = rule.map_or(0..0, |rule| {
            let rule = &self.rules[rule as usize];
            if wide { rule.wide.clone() } else { rule.narrow.clone() }
        });
        for at in others {
            let condition = self.conditions[at as usize];
            if condition.argument != 0 {
                self.conditions.push(condition);
            }
        }
        let both = start..self.conditions.len() as u32;
        self.rules.push(Rule { action, wide: both.clone(), narrow: both });
        self.count() - 1
    }

    /// Where a rule only asks whether one argument has one value: the argument, and the upper
    /// half of the value.
    pub(super) fn case(&self, rule: u32, wide: bool) -> Option<(u8, u32)> {
        match self.conditions(rule, wide) {
            [Condition { argument, operator: Operator::Equal, value, .. }] => {
                Some((*argument, (*value >> 32) as u32))
            }
            _ => None,
        }
    }

    /// Puts the rules of a call, given as they were added, in the order in which they are tried.
    ///
    /// It only matters between different actions, and then it is libseccomp's: later arguments
    /// first; then equality, less, greater; then the value, higher ones first (lower ones for less).
    /// libseccomp tests halves of arguments. Rules that begin with the same test stay together,
    /// where the first of them stood, and are ordered by the next test.
    pub(super) fn sort(&self, rules: impl Iterator<Item = u32> + Clone, wide: bool, order: &mut Vec<u32>) {
        order.clear();
        let mut actions = rules.clone().map(|rule| self.action(rule));
        let first = actions.next();
        if actions.all(|action| Some(action) == first) {
            order.extend(rules);
            order.sort_by_key(|rule| self.case(*rule, wide));
            return;
        }
        for rule in rules {
            let mut among = 0..order.len();
            for (depth, half) in Half::all(self.conditions(rule, wide), wide).enumerate() {
                let other = |at: usize| Half::all(self.conditions(order[at], wide), wide).nth(depth);
                let alike = |at: usize| other(at).is_some_and(|other| other.same_test(&half));
                let mut place = among.start;
                while place < among.end && !alike(place) {
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
            order.insert(among.end, rule);
        }
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

    /// The condition where arguments have 32 bits.
    fn narrow(self) -> Self {
        Condition { value: self.value & 0xffff_ffff, mask: self.mask & 0xffff_ffff, ..self }
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
