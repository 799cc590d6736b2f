//! The time of day, and dates as log lines, the state and HTTP write them.
//!
//! All dates are of the Gregorian calendar in UTC, from 1970 on. A day is the number of days since 1970-01-01, as in
//! Unix time, which has no leap seconds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SECONDS_OF_DAY: u64 = 86_400;
/// Days from 0000-03-01 to 1970-01-01.
const DAYS_TO_1970: u64 = 719_468;
/// The calendar repeats itself after 400 years of so many days.
const DAYS_OF_400_YEARS: u64 = 146_097;
/// The names of HTTP dates, which are the same in every language.
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The time of day, by a system call: finding the vDSO's clock costs more than it saves a process that asks once.
pub fn now() -> SystemTime {
    // SAFETY: a timespec of zeroes is valid.
    let mut now: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: `now` lives over the call.
    unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_REALTIME, &raw mut now) };
    UNIX_EPOCH + Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// `time` in UTC as RFC 3339 with nanoseconds, the form of `created` in the state.
///
/// A time before 1970 reads as 1970.
pub fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let Date { year, month, day } = Date::of_day(since.as_secs() / SECONDS_OF_DAY);
    let second = since.as_secs() % SECONDS_OF_DAY;
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    let nanos = since.subsec_nanos();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z")
}

/// The time that an HTTP date names (RFC 9110, 5.6.7): `Sun, 06 Nov 1994 08:49:37 GMT`.
///
/// The day of the week is not compared. The two obsolete forms, which RFC 9110 still asks recipients to read, are
/// not read: nobody has sent them since the 1990s.
pub fn parse_http_date(text: &str) -> Option<SystemTime> {
    let words: Vec<&str> = text.split(' ').collect();
    let [_, day, month, year, time, "GMT"] = words[..] else { return None };
    let month = MONTHS.iter().position(|name| *name == month)? as u64 + 1;
    let date = Date { year: year.parse().ok()?, month, day: day.parse().ok()? };
    let time: Vec<u64> = time.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let [hour, minute, second] = time[..] else { return None };
    // 60 is a leap second.
    if !(1970..=9999).contains(&date.year) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // A date that does not exist, such as 30 Feb, becomes another one on the way back.
    let days = date.day_number()?;
    if Date::of_day(days) != date {
        return None;
    }
    Some(UNIX_EPOCH + Duration::from_secs(days * SECONDS_OF_DAY + hour * 3_600 + minute * 60 + second))
}

/// A day of the calendar; month and day count from 1.
///
/// Both conversions count in years that begin in March, so that a leap day comes last:
/// <http://howardhinnant.github.io/date_algorithms.html>
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Date {
    year: u64,
    month: u64,
    day: u64,
}

impl Date {
    fn of_day(day: u64) -> Date {
        let days = day + DAYS_TO_1970;
        let (era, day_of_era) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * march_month + 2) / 5 + 1;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        Date { year: era * 400 + year_of_era + u64::from(month <= 2), month, day }
    }

    /// The reverse of [`Date::of_day`]; none before 1970, or where there is no such month or no day 1 to 31.
    fn day_number(self) -> Option<u64> {
        let Date { year, month, day } = self;
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return None;
        }
        let (year, march_month) =
            if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
        let days = 365 * year + year / 4 - year / 100 + year / 400;
        (days + (153 * march_month + 2) / 5 + day - 1).checked_sub(DAYS_TO_1970)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `date -u -d @N`, with `+%FT%T` and with `+%a, %d %b %Y %T GMT`.
    const KNOWN: [(u64, &str, &str); 7] = [
        (0, "1970-01-01T00:00:00", "Thu, 01 Jan 1970 00:00:00 GMT"),
        (784_111_777, "1994-11-06T08:49:37", "Sun, 06 Nov 1994 08:49:37 GMT"),
        (951_782_399, "2000-02-28T23:59:59", "Mon, 28 Feb 2000 23:59:59 GMT"),
        (951_782_400, "2000-02-29T00:00:00", "Tue, 29 Feb 2000 00:00:00 GMT"),
        (1_709_251_199, "2024-02-29T23:59:59", "Thu, 29 Feb 2024 23:59:59 GMT"),
        (1_735_689_599, "2024-12-31T23:59:59", "Tue, 31 Dec 2024 23:59:59 GMT"),
        (4_107_542_400, "2100-03-01T00:00:00", "Mon, 01 Mar 2100 00:00:00 GMT"),
    ];

    #[test]
    fn dates_are_those_of_date() {
        for (seconds, rfc, http) in KNOWN {
            let time = UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(rfc3339(time + Duration::from_nanos(42)), format!("{rfc}.000000042Z"));
            assert_eq!(parse_http_date(http), Some(time), "{http}");
        }
        assert_eq!(rfc3339(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00.000000000Z");
    }

    #[test]
    fn both_directions_agree() {
        // Every day of the years that HTTP can write.
        let mut before = Date { year: 1969, month: 12, day: 31 };
        for day in 0..2_932_897 {
            let date = Date::of_day(day);
            assert_eq!(date.day_number(), Some(day));
            let next_day = (date.year, date.month, date.day) == (before.year, before.month, before.day + 1);
            assert!(next_day || date.day == 1, "{before:?} before {date:?}");
            before = date;
        }
        assert_eq!(before, Date { year: 9999, month: 12, day: 31 });
    }

    #[test]
    fn what_is_no_http_date() {
        for bad in [
            "",
            "soon",
            "Sun, 06 Now 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1 08:49:37 GMT",
            "Sun, 06 Nov 18446744073709551615 08:49:37 GMT",
            "Fri, 30 Feb 2024 08:49:37 GMT",
            "Wed, 29 Feb 2023 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
        ] {
            assert_eq!(parse_http_date(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_clock_is_that_of_std() {
        let apart = SystemTime::now().duration_since(now()).unwrap_or_default();
        assert!(apart < Duration::from_secs(10), "{apart:?}");
    }
}
