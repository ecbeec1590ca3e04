//! `parklock top`: the list, live.

mod search;

use std::io::{self, IsTerminal};
use std::pin::pin;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};
use ratatui::{DefaultTerminal, Frame};
use tokio::time::sleep;

use crate::args::{Realm, Top};
use crate::failure::Failure;
use crate::inventory::{FullName, Inventory, Lock, Partial};
use crate::servers::{Reached, Server};
use crate::signals::Ends;
use crate::span::short;
use crate::top::search::Search;
use crate::{deadlocks, exit, info, list, output, servers, text};

/// How often `top` checks for pressed keys.
const KEYS: Duration = Duration::from_millis(50);
/// A lock whose last lease ends this soon was not renewed in time, unless its lease is short.
const SOON: Duration = Duration::from_secs(2);
/// How long the view waits for an answer. A server that hangs must not stop the view of the others.
const PATIENCE: Duration = Duration::from_secs(2);
const KEYS_THERE_ARE: &str = "q quit  Enter one lock  / search  sort: w waiting  n name  t ttl";
/// How many waiters of each lock `top` reads.
const WAITERS: usize = 100;

pub(crate) async fn top(asked: &Top) -> Result<u8, Failure> {
    if asked.deadlocks {
        return search_deadlocks(asked).await;
    }
    if asked.once || asked.json || !io::stdout().is_terminal() {
        return list::print(&asked.server, &asked.pattern, asked.json).await;
    }
    let realm = asked.server.realm()?;
    let reached = servers::reach(&asked.server.url()).await?.within(PATIENCE);
    let mut ends = Ends::new();
    let mut terminal = ratatui::init();
    let watched = tokio::select! {
        watched = watch(asked, &realm, reached, &mut terminal) => watched,
        number = ends.next() => Ok(exit::of_signal(number)),
    };
    // After HUP there may be no terminal any more.
    let _ = ratatui::try_restore();
    watched
}

/// Exit code 1 if there is a circle.
async fn search_deadlocks(asked: &Top) -> Result<u8, Failure> {
    let realm = asked.server.realm()?;
    if realm.layout == parklock::Layout::Redisson {
        return Err(Failure::config(
            "Redisson's keys do not say who waits: --deadlocks is only for parklock's layout",
        ));
    }
    let reached = servers::reach(&asked.server.url()).await?;
    reached.complain();
    let look = || Inventory::load(&reached.servers, &realm, &asked.pattern, WAITERS);
    let before = look().await?;
    sleep(asked.interval).await;
    let now = look().await?;
    let circles = deadlocks::standing(&before, &now);
    output::put(&deadlocks::text(&circles, &now));
    Ok(if circles.is_empty() { reached.code() } else { exit::BUSY })
}

async fn watch(
    asked: &Top,
    realm: &Realm,
    mut reached: Reached,
    terminal: &mut DefaultTerminal,
) -> Result<u8, Failure> {
    let mut view = View::new(&reached.servers, &asked.pattern);
    let url = asked.server.url();
    let mut search = Search::default();
    loop {
        let began = Instant::now();
        let look = Inventory::load_what_answers(&reached.servers, realm, &asked.pattern, WAITERS);
        let Some(looked) = beside_keys(&mut view, terminal, look).await? else { break };
        view.take(looked, &reached, began.elapsed());
        let has_trouble = !view.trouble.is_empty();
        if has_trouble {
            // A primary may have failed over.
            let url = url.clone();
            search.begin(async move { servers::reach(&url).await });
        }
        if let Some(found) = search.found(has_trouble).await {
            reached = found.within(PATIENCE);
        }
        let pause = asked.interval.max(KEYS).saturating_sub(began.elapsed());
        let Some(()) = beside_keys(&mut view, terminal, sleep(pause)).await? else { break };
    }
    Ok(exit::OK)
}

/// Does this work, and handles pressed keys meanwhile. `None`: the user has closed the view.
async fn beside_keys<T>(
    view: &mut View,
    terminal: &mut DefaultTerminal,
    work: impl Future<Output = T>,
) -> Result<Option<T>, Failure> {
    let mut work = pin!(work);
    loop {
        while event::poll(Duration::ZERO).unwrap_or(false) {
            view.key(&event::read().unwrap_or(Event::FocusLost));
        }
        if !view.is_open {
            return Ok(None);
        }
        if std::mem::take(&mut view.is_stale) {
            let drawn = terminal.draw(|frame| view.draw(frame));
            drawn.map_err(|error| Failure::unavailable(error.to_string()))?;
        }
        tokio::select! {
            done = &mut work => return Ok(Some(done)),
            () = sleep(KEYS) => {}
        }
    }
}

/// What a lock is known by from one look to the next.
fn key(lock: &Lock) -> FullName {
    (lock.namespace.clone(), lock.name.clone())
}

/// How the list is sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Waiting,
    Name,
    Ttl,
}

/// What is on the screen.
#[derive(Debug)]
pub(crate) struct View {
    title: String,
    inventory: Inventory,
    took: Duration,
    /// Which servers do not answer, and why. Empty if all is well.
    trouble: String,
    order: Order,
    /// Only names with this text are shown.
    wanted: String,
    /// Keys change that text.
    is_typing: bool,
    state: TableState,
    /// All details of one lock.
    shows_one: bool,
    is_open: bool,
    /// The view has changed, and the screen does not show the change yet.
    is_stale: bool,
}

impl View {
    pub(crate) fn new(servers: &[Server], pattern: &str) -> Self {
        let of = match servers {
            [one] => one.address.clone(),
            several => format!("{} primaries", several.len()),
        };
        let title = if pattern == "*" { of } else { format!("{of}, {}", text::printable(pattern)) };
        Self {
            title,
            inventory: Inventory::default(),
            took: Duration::ZERO,
            trouble: String::new(),
            order: Order::Waiting,
            wanted: String::new(),
            is_typing: false,
            state: TableState::default(),
            shows_one: false,
            is_open: true,
            is_stale: true,
        }
    }

    /// Takes over what the last look has found, and why it is incomplete. If no server has answered, the list stays.
    fn take(&mut self, looked: Partial, reached: &Reached, took: Duration) {
        let selected = self.selected().map(key);
        (self.took, self.is_stale) = (took, true);
        let missing = reached.missing.iter().map(|missing| &missing.failure);
        let troubles = looked.failures.iter().chain(missing).map(Failure::to_string);
        self.trouble = troubles.collect::<Vec<_>>().join("; ");
        if looked.has_looked {
            self.inventory = looked.inventory;
        }
        self.sort();
        self.select(selected);
    }

    /// The selection stays with its lock, wherever that lock stands in the list now.
    fn select(&mut self, selected: Option<FullName>) {
        let at = self.shown().position(|lock| selected == Some(key(lock)));
        let last = self.shown().count().checked_sub(1);
        self.state.select(at.or_else(|| self.state.selected().min(last).or(last.map(|_| 0))));
    }

    /// The locks of the list.
    fn shown(&self) -> impl Iterator<Item = &Lock> {
        self.inventory.locks.iter().filter(|lock| lock.name.contains(&self.wanted))
    }

    fn sort(&mut self) {
        let order = self.order;
        self.inventory.locks.sort_by(|a, b| match order {
            Order::Waiting => b.waiting.cmp(&a.waiting).then_with(|| a.name.cmp(&b.name)),
            Order::Name => a.name.cmp(&b.name),
            Order::Ttl => a.ttl.cmp(&b.ttl).then_with(|| a.name.cmp(&b.name)),
        });
    }

    fn selected(&self) -> Option<&Lock> {
        self.shown().nth(self.state.selected()?)
    }

    fn key(&mut self, event: &Event) {
        self.is_stale = true;
        let Event::Key(key) = event else { return };
        if key.kind == KeyEventKind::Release {
            return;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => self.is_open = false,
            KeyCode::Enter if self.is_typing => self.is_typing = false,
            code if self.is_typing => self.type_in(code),
            KeyCode::Char('/') => (self.is_typing, self.shows_one) = (true, false),
            KeyCode::Char('q') => self.is_open = false,
            KeyCode::Esc if self.shows_one => self.shows_one = false,
            KeyCode::Esc if !self.wanted.is_empty() => self.type_in(KeyCode::Esc),
            KeyCode::Esc => self.is_open = false,
            KeyCode::Enter => self.shows_one = !self.shows_one && self.selected().is_some(),
            KeyCode::Down | KeyCode::Char('j') => self.state.select_next(),
            KeyCode::Up | KeyCode::Char('k') => self.state.select_previous(),
            KeyCode::Char('w') => self.sort_by(Order::Waiting),
            KeyCode::Char('n') => self.sort_by(Order::Name),
            KeyCode::Char('t') => self.sort_by(Order::Ttl),
            _ => {}
        }
    }

    /// Changes the text that names must have.
    fn type_in(&mut self, code: KeyCode) {
        let selected = self.selected().map(key);
        match code {
            KeyCode::Char(typed) => self.wanted.push(typed),
            KeyCode::Backspace => drop(self.wanted.pop()),
            KeyCode::Esc => {
                self.wanted.clear();
                self.is_typing = false;
            }
            _ => {}
        }
        self.select(selected);
    }

    fn sort_by(&mut self, order: Order) {
        let selected = self.selected().map(key);
        self.order = order;
        self.sort();
        self.select(selected);
    }

    pub(crate) fn draw(&mut self, frame: &mut Frame<'_>) {
        let rows =
            Layout::vertical([Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1)]);
        let [top, middle, bottom] = rows.areas(frame.area());
        frame.render_widget(self.head(), top);
        match self.selected().filter(|_| self.shows_one) {
            Some(lock) => {
                frame.render_widget(Paragraph::new(info::text(lock, &self.inventory)), middle);
            }
            None => {
                let table = self.table();
                frame.render_stateful_widget(table, middle, &mut self.state);
            }
        }
        let gray = Style::new().fg(Color::DarkGray);
        let wanted = text::printable(&self.wanted);
        let keys = match (self.is_typing, wanted.is_empty()) {
            (true, _) => format!("names with: {wanted}_  Enter done  Esc all"),
            (false, false) => format!("names with: {wanted}  / another text  Esc all"),
            (false, true) => KEYS_THERE_ARE.to_owned(),
        };
        frame.render_widget(Line::from(keys).style(gray), bottom);
        frame.render_widget(Line::from(self.position(middle)).right_aligned().style(gray), bottom);
    }

    /// Which locks of the list are on the screen.
    fn position(&self, area: Rect) -> String {
        let (before, all) = (self.state.offset(), self.shown().count());
        if self.shows_one || all == 0 {
            return String::new();
        }
        let rows = usize::from(area.height).saturating_sub(1); // the first has the headings
        format!("{}-{} of {all}", before + 1, (before + rows).min(all))
    }

    fn head(&self) -> Line<'_> {
        let locks = &self.inventory.locks;
        let held = locks.iter().filter(|lock| lock.is_held()).count();
        let waiting: u64 = locks.iter().map(|lock| lock.waiting).sum();
        let counts = format!("  {held} held  {waiting} waiting  read in {}", short(self.took));
        let mut line = Line::from(vec![
            Span::from("parklock ").bold(),
            Span::from(&self.title),
            counts.into(),
        ]);
        if !self.trouble.is_empty() {
            line.push_span(Span::from(format!("  {}", self.trouble)).fg(Color::Red).bold());
        }
        line
    }

    fn table(&self) -> Table<'static> {
        let rows = self.shown().map(|lock| {
            Row::new(list::row(lock, &self.inventory).into_iter().map(Cell::from))
                .style(color(lock))
        });
        let namespace = self.inventory.is_of_all.then_some(Constraint::Fill(1));
        let widths = namespace.into_iter().chain([
            Constraint::Fill(3),
            Constraint::Length(9),
            Constraint::Fill(3),
            Constraint::Length(7),
            Constraint::Length(7),
            Constraint::Length(7),
            Constraint::Length(8),
        ]);
        let head = Row::new(list::columns(&self.inventory))
            .style(Style::new().add_modifier(Modifier::BOLD));
        let marked = Style::new().add_modifier(Modifier::REVERSED);
        Table::new(rows, widths).header(head).row_highlight_style(marked)
    }
}

/// Highlights locks that others wait for, and locks without a TTL.
fn color(lock: &Lock) -> Style {
    match lock {
        Lock { ttl: None, held_by: 1.., .. } => Style::new().fg(Color::Red),
        Lock { ttl: Some(ttl), waiting: 1.., .. } if *ttl < SOON => Style::new().fg(Color::Red),
        Lock { waiting: 1.., .. } => Style::new().fg(Color::Yellow),
        _ => Style::new(),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyEvent;

    use super::*;
    use crate::inventory::Holder;

    fn lock(name: &str, waiting: u64, ttl: u64) -> Lock {
        let (ttl, holder) = (Some(Duration::from_secs(ttl)), Holder::default());
        let holders = vec![Holder { owner: "client:1".to_owned(), count: 1, ..holder }];
        let (name, kind) = (name.to_owned(), "lock".to_owned());
        Lock { name, kind, ttl, waiting, holders, held_by: 1, ..Lock::default() }
    }

    fn found(locks: Vec<Lock>) -> Partial {
        let inventory = Inventory { locks, ..Inventory::default() };
        Partial { inventory, has_looked: true, ..Partial::default() }
    }

    fn view(locks: Vec<Lock>) -> View {
        let mut view = View::new(&[], "*");
        view.take(found(locks), &Reached::default(), Duration::from_millis(3));
        view
    }

    fn screen(view: &mut View) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(90, 8)).expect("it is in memory");
        terminal.draw(|frame| view.draw(frame)).expect("it is in memory");
        let buffer = terminal.backend().buffer();
        let row =
            |y| (0..90).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..8).map(row).collect()
    }

    fn press(view: &mut View, code: KeyCode) {
        view.key(&Event::Key(KeyEvent::new(code, KeyModifiers::NONE)));
    }

    #[test]
    fn the_lock_that_most_wait_for_stands_first() {
        let mut view = view(vec![lock("a", 0, 9), lock("b", 3, 20)]);
        let lines = screen(&mut view);
        assert_eq!(lines[0], "parklock 0 primaries  2 held  3 waiting  read in 3ms");
        assert!(lines[1].starts_with("NAME") && lines[1].ends_with("TOKEN"), "{lines:?}");
        assert!(lines[2].starts_with('b') && lines[3].starts_with('a'), "{lines:?}");
        assert!(lines[2].contains("client:1") && lines[2].contains("20.0s"), "{lines:?}");
        assert!(lines[7].starts_with("q quit"));
    }

    #[test]
    fn the_last_line_says_which_locks_are_shown() {
        let locks = |count: u64| (0..count).map(|at| lock(&format!("{at:03}"), 0, 9)).collect();
        let mut view = view(locks(300));
        assert!(screen(&mut view)[7].ends_with("  1-5 of 300"), "{:?}", screen(&mut view));
        (0..6).for_each(|_| press(&mut view, KeyCode::Down));
        assert!(screen(&mut view)[7].ends_with("  3-7 of 300"), "{:?}", screen(&mut view));
        press(&mut view, KeyCode::Enter);
        assert!(screen(&mut view)[7].ends_with("t ttl"), "{:?}", screen(&mut view));
        for (count, shown) in [(3, "  1-3 of 3"), (0, "t ttl")] {
            let mut view = self::view(locks(count));
            assert!(screen(&mut view)[7].ends_with(shown), "{:?}", screen(&mut view));
        }
    }

    #[test]
    fn keys_sort_and_open_and_close() {
        let mut view = view(vec![lock("a", 0, 9), lock("b", 3, 20)]);
        press(&mut view, KeyCode::Char('n'));
        assert!(screen(&mut view)[2].starts_with('a'));
        press(&mut view, KeyCode::Enter);
        assert!(screen(&mut view)[1].starts_with("name       b"), "{:?}", screen(&mut view));
        press(&mut view, KeyCode::Char('w'));
        assert!(screen(&mut view)[1].starts_with("name       b"), "it is the one that was opened");
        press(&mut view, KeyCode::Esc);
        assert!(view.is_open && screen(&mut view)[1].starts_with("NAME"));
        press(&mut view, KeyCode::Char('q'));
        assert!(!view.is_open);
    }

    #[test]
    fn a_search_shows_the_names_with_a_text() {
        let mut view =
            view(vec![lock("orders:1", 0, 9), lock("orders:2", 0, 9), lock("jobs", 0, 9)]);
        press(&mut view, KeyCode::Char('n'));
        press(&mut view, KeyCode::Down);
        for key in "/:2q".chars() {
            press(&mut view, KeyCode::Char(key));
        }
        assert!(view.is_open && view.selected().is_none(), "no name has `:2q`");
        press(&mut view, KeyCode::Backspace);
        let lines = screen(&mut view);
        assert!(lines[2].starts_with("orders:2") && lines[3].is_empty(), "{lines:?}");
        assert!(
            lines[7].starts_with("names with: :2_") && lines[7].ends_with("1-1 of 1"),
            "{lines:?}"
        );

        press(&mut view, KeyCode::Enter);
        press(&mut view, KeyCode::Enter);
        assert!(screen(&mut view)[1].starts_with("name       orders:2"));
        press(&mut view, KeyCode::Esc);
        press(&mut view, KeyCode::Esc);
        assert!(view.is_open && screen(&mut view)[7].ends_with("1-3 of 3"));
        assert_eq!(view.selected().map(|lock| lock.name.as_str()), Some("orders:2"));
    }

    #[test]
    fn the_selection_stays_with_its_lock() {
        let mut view = view(vec![lock("a", 2, 9), lock("b", 1, 20)]);
        press(&mut view, KeyCode::Down);
        assert_eq!(view.selected().map(|lock| lock.name.as_str()), Some("b"));
        let locks = vec![lock("a", 2, 9), lock("b", 5, 20), lock("c", 7, 1)];
        view.take(found(locks), &Reached::default(), Duration::ZERO);
        assert_eq!(view.selected().map(|lock| lock.name.as_str()), Some("b"));
        view.take(found(Vec::new()), &Reached::default(), Duration::ZERO);
        assert_eq!(view.state.selected(), None);
        assert!(screen(&mut view)[2].is_empty());
    }

    #[test]
    fn a_server_that_is_away_is_named_and_the_list_stays() {
        let mut view = view(vec![lock("a", 0, 9)]);
        let failures = vec![Failure::unavailable("no answer")];
        let silent = Partial { failures, ..Partial::default() };
        view.take(silent, &Reached::default(), Duration::ZERO);
        let lines = screen(&mut view);
        assert!(lines[0].ends_with("no answer") && lines[2].starts_with('a'), "{lines:?}");
    }

    #[test]
    fn the_list_of_one_server_is_shown_however_many_questions_others_leave_open() {
        let mut view = view(vec![lock("a", 0, 9)]);
        let failures = vec![Failure::unavailable("no list"), Failure::unavailable("no names")];
        let looked = Partial { failures, ..found(vec![lock("b", 0, 9)]) };
        view.take(looked, &Reached::default(), Duration::ZERO);
        assert!(screen(&mut view)[2].starts_with('b'));
    }
}
