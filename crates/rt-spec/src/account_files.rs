//! passwd(5), read as a file: no name service is asked.

use rt_sys::fd;
use std::path::Path;

/// Account files of images are not longer. A longer one is not read: it may be hostile.
const MOST: usize = 4 << 20;

/// The home directory of `uid` by the /etc/passwd that this process sees. `None` where the file has no such user, or no
/// absolute path for it.
pub fn home_of(uid: u32) -> Option<String> {
    let passwd = fd::read_hostile(Path::new("/etc/passwd"), MOST)?;
    home_in(&String::from_utf8_lossy(&passwd), uid)
}

/// The home directory of `uid` in the text of a passwd(5).
fn home_in(passwd: &str, uid: u32) -> Option<String> {
    let uid = uid.to_string();
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.nth(2)? == uid)
            .then(|| fields.nth(2))?
            .filter(|home| home.starts_with('/'))
            .map(str::to_owned)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_a_user_with_an_absolute_home_counts() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\nbroken\nme:x:7:7::home:/bin/sh\nme:x:7:7::/home/me:/bin/sh\n";
        assert_eq!(home_in(passwd, 0).as_deref(), Some("/root"));
        assert_eq!(home_in(passwd, 7).as_deref(), Some("/home/me"));
        assert_eq!(home_in(passwd, 70), None);
    }
}
