//! What a zone does after its last recorded change: the line at the end of its file, such as
//! `EST5EDT,M3.2.0,M11.1.0` (POSIX, with the hours of RFC 9636).

use std::str::FromStr;

use super::Offset;

const DAY: i64 = 86_400;

#[derive(Debug)]
pub(super) struct Rule {
    standard: Offset,
    /// Summer time: from when to when in each year.
    summer: Option<(Offset, Turn, Turn)>,
}

/// A moment of each year, in local time.
#[derive(Debug, Clone, Copy)]
struct Turn {
    day: Day,
    seconds: i64,
}

#[derive(Debug, Clone, Copy)]
enum Day {
    /// Month, week (5 is the last) and day of the week.
    Weekday(i64, i64, i64),
    /// From 1, without 29 February.
    Julian(i64),
    /// From 0, with it.
    Counted(i64),
}

impl FromStr for Rule {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split(',');
        let (standard, rest) = named(parts.next().ok_or(())?).ok_or(())?;
        if rest.is_empty() {
            return Ok(Self { standard, summer: None });
        }
        // One hour more, where it does not say.
        let usual = standard.seconds + 3600;
        let (name, rest) = name(rest).ok_or(())?;
        let seconds = if rest.is_empty() { usual } else { east(rest).ok_or(())?.0 };
        let from = turn(parts.next().ok_or(())?).ok_or(())?;
        let to = turn(parts.next().ok_or(())?).ok_or(())?;
        Ok(Self { standard, summer: Some((Offset { seconds, name }, from, to)) })
    }
}

impl Rule {
    pub(super) fn at(&self, time: i64) -> Offset {
        let Some((summer, from, to)) = &self.summer else { return self.standard.clone() };
        let year = year_of(time + i64::from(self.standard.seconds));
        let begins = from.in_year(year) - i64::from(self.standard.seconds);
        let ends = to.in_year(year) - i64::from(summer.seconds);
        let is_summer = match begins < ends {
            true => (begins..ends).contains(&time),
            false => !(ends..begins).contains(&time), // in the south
        };
        if is_summer { summer.clone() } else { self.standard.clone() }
    }
}

impl Turn {
    /// Seconds of local time.
    fn in_year(self, year: i64) -> i64 {
        let first = days_before(year, 1);
        let day = match self.day {
            Day::Weekday(month, week, weekday) => {
                let begins = days_before(year, month);
                let ends = if month == 12 {
                    days_before(year + 1, 1)
                } else {
                    days_before(year, month + 1)
                };
                let ahead = (weekday - (begins + 4)).rem_euclid(7); // the epoch was a Thursday
                let day = begins + ahead + 7 * (week - 1);
                if day >= ends { day - 7 } else { day }
            }
            Day::Julian(day) => {
                let is_leap = days_before(year, 3) - first == 60;
                first + day - 1 + i64::from(is_leap && day >= 60)
            }
            Day::Counted(day) => first + day,
        };
        day * DAY + self.seconds
    }
}

/// Days from the epoch to the first of a month, by the rule of Gregory.
fn days_before(year: i64, month: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let of_month = (153 * month + 2) / 5;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + of_month
        - 719_468
}

fn year_of(time: i64) -> i64 {
    let day = time.div_euclid(DAY);
    let guess = 1970 + day.div_euclid(366);
    (guess..).find(|year| days_before(year + 1, 1) > day).unwrap_or(guess)
}

/// `EST5`, and what comes behind it.
fn named(text: &str) -> Option<(Offset, &str)> {
    let (name, rest) = name(text)?;
    let (seconds, rest) = east(rest)?;
    Some((Offset { seconds, name }, rest))
}

fn name(text: &str) -> Option<(String, &str)> {
    if let Some(quoted) = text.strip_prefix('<') {
        let (name, rest) = quoted.split_once('>')?;
        return Some((name.to_owned(), rest));
    }
    let end = text.find(|it: char| !it.is_ascii_alphabetic()).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    (!name.is_empty()).then(|| (name.to_owned(), rest))
}

/// Hours to the west, as POSIX counts, as seconds to the east.
fn east(text: &str) -> Option<(i32, &str)> {
    let end = text.find(|it: char| !it.is_ascii_digit() && !"+-:".contains(it));
    let (said, rest) = text.split_at(end.unwrap_or(text.len()));
    Some((i32::try_from(-clock(said)?).ok()?, rest))
}

/// `[-]hh[:mm[:ss]]` in seconds.
fn clock(text: &str) -> Option<i64> {
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut seconds = 0;
    for (part, unit) in text.split(':').zip([3600, 60, 1]) {
        seconds += part.parse::<i64>().ok().filter(|it| *it < 200)? * unit;
    }
    Some(sign * seconds)
}

fn turn(text: &str) -> Option<Turn> {
    let (day, time) = text.split_once('/').unwrap_or((text, "2"));
    let seconds = clock(time)?;
    let number = |text: &str| text.parse::<i64>().ok().filter(|it| (0..=366).contains(it));
    let day = if let Some(weekday) = day.strip_prefix('M') {
        let mut parts = weekday.split('.').map(number);
        let (month, week, weekday) = (parts.next()??, parts.next()??, parts.next()??);
        (1..=12).contains(&month).then_some(Day::Weekday(month, week, weekday))?
    } else if let Some(julian) = day.strip_prefix('J') {
        Day::Julian(number(julian)?)
    } else {
        Day::Counted(number(day)?)
    };
    Some(Turn { day, seconds })
}
