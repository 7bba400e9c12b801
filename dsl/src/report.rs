//! Everything found while a program is read, and the files it was found in.

use crate::{
    Code, Diagnostic, Diagnostics, Mistake, Severity, SourceFile, SourcePlace, Span,
    limit, parse::Misread,
};

/// Proof that a mistake was reported; whoever holds it says nothing more about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reported(());

/// A result whose mistakes are reported already.
pub(crate) type Known<T> = Result<T, Reported>;

/// So many of the places around a mistake are told.
const AROUND: usize = 3;

/// Findings of one program.
#[derive(Default)]
pub(crate) struct Report {
    files: Vec<SourceFile>,
    findings: Vec<Finding>,
    /// Calls and passes that are being worked through, outermost first.
    around: Vec<(Span, String)>,
    errors: usize,
    /// Where the first finding is for which there was no room.
    unkept: Option<Span>,
}

struct Finding {
    severity: Severity,
    span: Span,
    mistake: Mistake,
    labels: Vec<(Span, String)>,
}

impl Finding {
    fn says_the_same(&self, other: &Self) -> bool {
        let told = |one: &Self| (one.severity, one.span);
        told(self) == told(other) && self.mistake == other.mistake
    }
}

impl Report {
    /// Adds a file and returns its number.
    pub(crate) fn add_file(&mut self, file: SourceFile) -> u32 {
        self.files.push(file);
        crate::source::count(self.files.len() - 1)
    }

    /// A file that was added.
    pub(crate) fn file(&self, number: u32) -> &SourceFile {
        &self.files[number as usize]
    }

    /// What is found from here to [`Report::leave`] is told with this place.
    pub(crate) fn enter(&mut self, span: Span, text: String) {
        self.around.push((span, text));
    }

    /// Leaves what was entered last.
    pub(crate) fn leave(&mut self) {
        self.around.pop();
    }

    /// Keeps a mistake.
    pub(crate) fn error(&mut self, span: Span, mistake: Mistake) -> Reported {
        self.error_with(span, mistake, Vec::new())
    }

    /// Keeps a mistake together with other places that matter.
    pub(crate) fn error_with(
        &mut self,
        span: Span,
        mistake: Mistake,
        labels: Vec<(Span, String)>,
    ) -> Reported {
        self.errors += 1;
        self.keep(Finding { severity: Severity::Error, span, mistake, labels });
        Reported(())
    }

    /// Keeps a mistake of the parser.
    pub(crate) fn syntax_error(&mut self, misread: Misread) -> Reported {
        let Misread { span, mistake, labels } = misread;
        self.error_with(span, mistake, labels)
    }

    /// Keeps a warning.
    pub(crate) fn warning(&mut self, span: Span, mistake: Mistake) {
        let severity = Severity::Warning;
        self.keep(Finding { severity, span, mistake, labels: Vec::new() });
    }

    /// The proof that something was reported earlier.
    pub(crate) fn earlier(&self) -> Reported {
        assert!(self.errors > 0, "only a reported mistake is passed on");
        Reported(())
    }

    /// Mistakes so far, kept or not.
    pub(crate) fn errors(&self) -> usize {
        self.errors
    }

    /// Whether more mistakes would not be kept; what is left need not be looked at.
    pub(crate) fn is_full(&self) -> bool {
        self.errors > 0 && self.unkept.is_some()
    }

    /// Expanded bodies repeat their mistakes; each is kept once, whatever led to it. Of many places
    /// around it the innermost ones are told, and the outermost.
    fn keep(&mut self, mut finding: Finding) {
        if self.findings.iter().any(|earlier| earlier.says_the_same(&finding)) {
            return;
        }
        for place in self.around.iter().rev().take(AROUND).chain(self.around.first()) {
            if place.0 != finding.span && !finding.labels.contains(place) {
                finding.labels.push(place.clone());
            }
        }
        let room = self.findings.len() < limit::DIAGNOSTICS;
        let first = finding.severity == Severity::Error && self.errors == 1;
        match room || first {
            true => self.findings.push(finding),
            false => _ = self.unkept.get_or_insert(finding.span),
        }
    }

    /// The value with all warnings, or all diagnostics.
    pub(crate) fn finish<T>(
        mut self,
        value: Known<T>,
    ) -> Result<(T, Vec<Diagnostic>), Diagnostics> {
        self.findings.sort_by_key(|finding| finding.span);
        let unkept = self.unkept.map(|span| self.too_many(span));
        let all = self.findings.iter().chain(&unkept);
        let all = all.map(|finding| self.shown(finding)).collect();
        match value {
            Ok(value) if self.errors == 0 => Ok((value, all)),
            _ => Err(Diagnostics::new(all)),
        }
    }

    /// What is said behind all that is kept: that it is not all.
    fn too_many(&self, span: Span) -> Finding {
        let severity = match self.errors {
            0 => Severity::Warning,
            _ => Severity::Error,
        };
        let message = format!(
            "there are more: at most {} mistakes and warnings are told",
            limit::DIAGNOSTICS
        );
        let mistake = Mistake::new(Code::Limit, message);
        let mistake = mistake.hint("mend those that are told, and the others follow");
        Finding { severity, span, mistake, labels: Vec::new() }
    }

    fn shown(&self, finding: &Finding) -> Diagnostic {
        let place = |span: Span| SourcePlace::new(self.file(span.file), span);
        let Finding { severity, span, mistake, labels } = finding;
        Diagnostic {
            code: mistake.code,
            severity: *severity,
            place: Box::new(place(*span)),
            message: mistake.message.clone(),
            hints: mistake.hints.clone(),
            labels: labels
                .iter()
                .map(|(span, text)| (place(*span), text.clone()))
                .collect(),
        }
    }
}

/// A second definition of one name.
pub(crate) fn duplicate(what: &str, name: &str) -> Mistake {
    Mistake::new(Code::Duplicate, format!("{what} `{name}` is defined twice"))
}

/// A part of the language that is not delivered yet.
pub(crate) fn not_yet(what: impl std::fmt::Display) -> Mistake {
    Mistake::new(Code::NotYet, format!("{what} is not supported yet"))
}
