//! `NVIDIA_REQUIRE_*`: what an image needs of the driver and the GPUs.
//!
//! An expression is a list of alternatives, separated by white space; an alternative is a list of conditions,
//! separated by commas, all of which must hold; a condition is a name, an operator and a value, such as
//! `cuda>=12.2`, `brand=tesla`, `driver<536` or `arch!=7.0`.

use rt_sys::error::Result;
use rt_sys::{bail, err};
use std::cmp::Ordering;

/// What conditions are about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The newest CUDA version that the driver runs.
    pub cuda: String,
    /// The driver's version.
    pub driver: String,
    /// Compute capability, such as `8.0`; empty where unknown.
    pub arch: String,
    /// `tesla`, `geforce` and so on, in lower case.
    pub brand: String,
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Condition<'a> {
    name: &'a str,
    operator: Operator,
    value: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Longer ones first, since `<` begins `<=`.
const OPERATORS: &[(&str, Operator)] = &[
    ("!=", Operator::NotEqual),
    ("<=", Operator::LessOrEqual),
    (">=", Operator::GreaterOrEqual),
    ("=", Operator::Equal),
    ("<", Operator::Less),
    (">", Operator::Greater),
];

impl Operator {
    fn holds(self, order: Ordering) -> bool {
        match self {
            Operator::Equal => order.is_eq(),
            Operator::NotEqual => order.is_ne(),
            Operator::Less => order.is_lt(),
            Operator::LessOrEqual => order.is_le(),
            Operator::Greater => order.is_gt(),
            Operator::GreaterOrEqual => order.is_ge(),
        }
    }
}

/// True where `expression` holds. Fails where it is no expression.
pub fn holds(expression: &str, facts: &Facts) -> Result<bool> {
    let mut alternatives = 0;
    let mut satisfied = false;
    // The whole expression is parsed, so that a mistake in it is an error on every node.
    for alternative in expression.split_ascii_whitespace() {
        alternatives += 1;
        let mut all = true;
        for condition in alternative.split(',') {
            all &= condition_holds(&parse(condition)?, facts)?;
        }
        satisfied |= all;
    }
    Ok(satisfied || alternatives == 0)
}

fn parse(text: &str) -> Result<Condition<'_>> {
    let at = text.find(['=', '!', '<', '>']).ok_or_else(|| err!("{text:?} has no operator"))?;
    let (name, rest) = text.split_at(at);
    let found = OPERATORS.iter().find_map(|(sign, operator)| Some((*operator, rest.strip_prefix(sign)?)));
    let Some((operator, value)) = found else { bail!("{text:?} has no operator") };
    if name.is_empty() || value.is_empty() || value.contains(['=', '!', '<', '>']) {
        bail!("{text:?} is not NAME OPERATOR VALUE");
    }
    Ok(Condition { name, operator, value })
}

fn condition_holds(condition: &Condition<'_>, facts: &Facts) -> Result<bool> {
    let fact = match condition.name {
        "cuda" => &facts.cuda,
        "driver" => &facts.driver,
        "arch" => &facts.arch,
        "brand" => {
            let equal = facts.brand.eq_ignore_ascii_case(condition.value);
            return match condition.operator {
                Operator::Equal => Ok(equal),
                Operator::NotEqual => Ok(!equal),
                _ => bail!("brand is compared by = and != only"),
            };
        }
        name => bail!("unknown name {name:?} (cuda, driver, arch or brand)"),
    };
    let wanted = version(condition.value).ok_or_else(|| err!("{:?} is not a version", condition.value))?;
    // The tables here lack GPUs and drivers that are newer than this program. These are not refused.
    let Some(fact) = version(fact) else { return Ok(true) };
    Ok(condition.operator.holds(compare(&fact, &wanted)))
}

/// Numbers separated by dots.
fn version(text: &str) -> Option<Vec<u32>> {
    text.split('.').map(|n| n.parse().ok()).collect()
}

/// Numerically; missing parts are zero, so that 12 is 12.0.
fn compare(a: &[u32], b: &[u32]) -> Ordering {
    let part = |v: &[u32], n: usize| v.get(n).copied().unwrap_or(0);
    let differs = |n: &usize| part(a, *n) != part(b, *n);
    (0..a.len().max(b.len())).find(differs).map_or(Ordering::Equal, |n| part(a, n).cmp(&part(b, n)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts { cuda: "12.2".into(), driver: "535.261.03".into(), arch: "8.0".into(), brand: "nvidia".into() }
    }

    #[test]
    fn expressions_are_alternatives_of_conditions() {
        for (text, expected) in [
            ("", true),
            ("cuda>=12.2", true),
            ("cuda>=12.3", false),
            ("cuda>12.1,driver<536", true),
            ("cuda>12.2 driver>=535", true),
            ("cuda>=12.3 brand=tesla,driver>=470", false),
            ("cuda>=12.3 brand=tesla,driver>=470,driver<471 brand=NVIDIA,driver>=535,driver<536", true),
            ("driver=535.261.3", true),
            ("driver!=535.261.03", false),
            ("arch>=7.0,arch<=8.0", true),
            ("arch>8.0", false),
            ("brand!=geforce", true),
            ("cuda=12.2.0", true),
        ] {
            assert_eq!(holds(text, &facts()).unwrap(), expected, "{text}");
        }
        let unknown = Facts { arch: String::new(), ..facts() };
        assert!(holds("arch>=99", &unknown).unwrap());
    }

    #[test]
    fn mistakes_are_named() {
        for text in
            ["cuda", "cuda>=", ">=12", "cuda>=12.x", "cuda=>12", "fun>=1", "brand>tesla", "cuda>=1,", "a!b"]
        {
            assert!(holds(text, &facts()).is_err(), "{text}");
        }
        // Also where another alternative holds.
        assert!(holds("cuda>=11 nonsense", &facts()).is_err());
    }
}
