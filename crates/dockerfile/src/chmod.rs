//! The value of `--chmod`: digits, or what chmod(1) takes with letters.

/// What becomes of the modes of what is copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chmod {
    /// All get this one.
    Digits(u32),
    /// Bits of each are changed.
    Letters(Vec<Change>),
}

/// One change, such as `go=rX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The bits of those who are named.
    who: u32,
    sign: char,
    value: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    /// Bits, and those of x where somebody has one already or it is a directory.
    Bits { bits: u32, executes_more: bool },
    /// What this one has: so many bits to the left of the others' own.
    Of(u32),
}

/// Bits of everybody.
const ALL: u32 = 0o7777;

impl Chmod {
    /// Reads the value of the flag.
    ///
    /// # Errors
    /// It is no mode.
    pub fn parse(text: &str) -> Result<Chmod, String> {
        let bad = || format!("--chmod={text}: not a mode such as 0755 or u=rwX,go=rX");
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= ALL);
            return mode.map(Chmod::Digits).ok_or_else(bad);
        }
        let mut changes = Vec::new();
        for clause in text.split(',') {
            let signs = clause.find(['+', '-', '=']).ok_or_else(bad)?;
            let (named, mut rest) = clause.split_at(signs);
            let mut who = 0;
            for c in named.chars() {
                who |= match c {
                    'u' => 0o4700,
                    'g' => 0o2070,
                    'o' => 0o1007,
                    'a' => ALL,
                    _ => return Err(bad()),
                };
            }
            let who = if named.is_empty() { ALL } else { who };
            while let Some(sign) = rest.chars().next() {
                let end = rest[1..].find(['+', '-', '=']).map_or(rest.len(), |at| at + 1);
                let value = Value::parse(&rest[1..end]).ok_or_else(bad)?;
                changes.push(Change { who, sign, value });
                rest = &rest[end..];
            }
        }
        Ok(Chmod::Letters(changes))
    }

    /// What a mode becomes.
    pub fn apply(&self, mode: u32, is_dir: bool) -> u32 {
        match self {
            Chmod::Digits(mode) => *mode,
            Chmod::Letters(changes) => {
                changes.iter().fold(mode & ALL, |mode, change| change.apply(mode, is_dir))
            }
        }
    }
}

impl Value {
    fn parse(text: &str) -> Option<Value> {
        let (mut bits, mut executes_more) = (0, false);
        match text {
            "u" => return Some(Value::Of(6)),
            "g" => return Some(Value::Of(3)),
            "o" => return Some(Value::Of(0)),
            _ => {}
        }
        for c in text.chars() {
            match c {
                'r' => bits |= 0o444,
                'w' => bits |= 0o222,
                'x' => bits |= 0o111,
                's' => bits |= 0o6000,
                't' => bits |= 0o1000,
                'X' => executes_more = true,
                _ => return None,
            }
        }
        Some(Value::Bits { bits, executes_more })
    }
}

impl Change {
    fn apply(self, mode: u32, is_dir: bool) -> u32 {
        let bits = match self.value {
            Value::Bits { bits, executes_more } if executes_more && (is_dir || mode & 0o111 != 0) => {
                bits | 0o111
            }
            Value::Bits { bits, .. } => bits,
            Value::Of(shift) => (mode >> shift & 0o7) * 0o111,
        };
        let bits = bits & self.who;
        match self.sign {
            '+' => mode | bits,
            '-' => mode & !bits,
            _ => mode & !self.who | bits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form() {
        for (text, mode, is_dir, wanted) in [
            ("0755", 0o644, false, 0o755),
            ("4711", 0o644, false, 0o4711),
            ("u=rwX,go=rX", 0o600, false, 0o644),
            ("u=rwX,go=rX", 0o700, false, 0o755),
            ("u=rwX,go=rX", 0o700, true, 0o755),
            ("u=rwX,go=rX", 0o600, true, 0o755),
            ("+x", 0o644, false, 0o755),
            ("a-w", 0o666, false, 0o444),
            ("go-rwx", 0o755, false, 0o700),
            ("u+s,g+s", 0o755, false, 0o6755),
            ("o+s", 0o755, false, 0o755),
            ("+t", 0o777, true, 0o1777),
            ("g=u,o=", 0o750, false, 0o770),
            ("go=u-w", 0o700, false, 0o755),
            ("u=", 0o755, false, 0o055),
            ("ug+rw-x", 0o111, false, 0o661),
        ] {
            assert_eq!(Chmod::parse(text).unwrap().apply(mode, is_dir), wanted, "{text} of {mode:o}");
        }
    }

    #[test]
    fn what_is_no_mode() {
        for bad in ["", "u", "rwx", "u=q", "8", "10000", "755x", "u=rw,", ",u=r", "z+r", "u=gx", "ü+r", "u+ü"]
        {
            assert!(Chmod::parse(bad).is_err(), "{bad}: {:?}", Chmod::parse(bad));
        }
    }
}
