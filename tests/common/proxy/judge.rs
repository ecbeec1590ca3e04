//! Decides for each request and each message what shall happen to it. Knows the rules, no sockets.

use std::time::Duration;

use super::dice::Dice;
use super::fault::Fault;
use super::rule::{Class, Rule, Target};
use super::scripts::Scripts;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Request,
    Reply,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Verb {
    Pass,
    Delay { base: Duration, jitter: Duration },
    Hold,
    Cut { after: usize },
    Swallow,
    Slice { bytes: usize },
}

/// A fault that strikes this very frame.
#[derive(Debug)]
pub(super) struct Strike {
    pub(super) verb: Verb,
    pub(super) fault: Fault,
}

/// What strikes a request, and what will strike its reply. Nearly always nothing, and then nothing is allocated.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) request: Vec<Strike>,
    pub(super) reply: Vec<Strike>,
}

/// A request on its way to the server.
pub(super) struct Request<'a> {
    pub(super) class: Class,
    pub(super) frame: &'a [u8],
    pub(super) words: [Option<&'a [u8]>; 3],
}

#[derive(Debug)]
struct Installed {
    rule: Rule,
    seen: usize,
    stage: Stage,
    verb: Verb,
    fault: Fault,
}

#[derive(Debug)]
pub(super) struct Judge {
    installed: Vec<Installed>,
    pub(super) scripts: Scripts,
    dice: Dice,
}

impl Judge {
    pub(super) fn new(seed: u64) -> Self {
        Self { installed: Vec::new(), scripts: Scripts::default(), dice: Dice::seeded(seed) }
    }

    pub(super) fn install(&mut self, rule: Rule, stage: Stage, verb: Verb) -> Fault {
        let fault = Fault::new(format!("{verb:?} of the {stage:?}: {rule:?}"));
        self.installed.push(Installed { rule, seen: 0, stage, verb, fault: fault.clone() });
        fault
    }

    pub(super) fn request(&mut self, request: &Request<'_>) -> Verdict {
        let [command, first, second] = request.words;
        let command = command.unwrap_or_default();
        self.scripts.learn(command, [first, second]);
        if self.installed.is_empty() {
            return Verdict::default();
        }
        let names = self.scripts.run_by(command, first).to_vec();
        self.strikes(request.class, request.frame, |target| match target {
            Target::Everything => true,
            Target::Command(name) => command.eq_ignore_ascii_case(name.as_bytes()),
            Target::Script(name) => names.contains(name),
            Target::Message => false,
        })
    }

    /// A push that answers nothing. All that strikes it strikes at the reply's stage.
    pub(super) fn message(&mut self, class: Class, frame: &[u8]) -> Vec<Strike> {
        self.strikes(class, frame, |target| matches!(target, Target::Message)).reply
    }

    fn strikes(
        &mut self,
        class: Class,
        frame: &[u8],
        is_meant: impl Fn(&Target) -> bool,
    ) -> Verdict {
        let mut verdict = Verdict::default();
        for installed in &mut self.installed {
            if !is_meant(&installed.rule.target) || !installed.strikes(class, frame) {
                continue;
            }
            let strike = Strike {
                verb: rolled(installed.verb, &mut self.dice),
                fault: installed.fault.clone(),
            };
            match installed.stage {
                Stage::Request => verdict.request.push(strike),
                Stage::Reply => verdict.reply.push(strike),
            }
        }
        verdict
    }
}

impl Installed {
    /// Counts what fits, and says whether it is one of those meant.
    fn strikes(&mut self, class: Class, frame: &[u8]) -> bool {
        let of_class = self.rule.class.is_none_or(|meant| meant == class);
        if self.fault.is_lifted() || !of_class || !contains(frame, &self.rule.part) {
            return false;
        }
        self.seen += 1;
        self.rule.window.contains(&(self.seen - 1))
    }
}

/// A delay with its jitter settled.
fn rolled(verb: Verb, dice: &mut Dice) -> Verb {
    match verb {
        Verb::Delay { base, jitter } => {
            Verb::Delay { base: dice.delay(base, jitter), jitter: Duration::ZERO }
        }
        settled => settled,
    }
}

fn contains(frame: &[u8], part: &[u8]) -> bool {
    part.is_empty() || frame.windows(part.len()).any(|window| window == part)
}
