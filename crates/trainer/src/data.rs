//! Problems and worked solutions from JSONL and Parquet files.

mod data_error;
mod messages;
#[cfg(test)]
mod parquet_fixture;
mod parquet_rows;
mod prompt_row;
mod row_columns;
mod rows;
mod solution_row;

pub use data_error::{DataError, RowPlace};
pub use row_columns::Columns;

use std::{collections::HashMap, path::Path};

use firebrick_core::{Message, Prompt};

use prompt_row::{completion_row, prompt_of};
use rows::{default_id, read_rows};
use solution_row::solution_of;

/// A problem with the response that a warm start learns to give.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkedSolution {
    /// What the model is shown.
    pub messages: Vec<Message>,
    /// What it is to answer.
    pub response: String,
}

/// A problem with a completion to grade, or none.
#[derive(Debug, Clone, PartialEq)]
pub struct CompletionRow {
    /// The problem; its message is empty where the row has no prompt.
    pub prompt: Prompt,
    /// The completion.
    pub completion: Option<String>,
}

/// How data files are read: the one of a run is [`DataSection::reader`](crate::DataSection::reader).
///
/// A file whose name ends in `.parquet` is read as Parquet (snappy, zstd, gzip or no compression), any other as JSONL, one object
/// a line, empty lines skipped. Values that are null count as left out. What JSON does not have is turned into what it has: dates,
/// times and decimals of Parquet into text (times in nanoseconds stay whole numbers), bytes into text or hexadecimal digits,
/// numbers that are not finite into null.
///
/// ```
/// use firebrick_trainer::{Columns, DataReader};
///
/// let path = std::env::temp_dir().join("firebrick-data-reader.jsonl");
/// std::fs::write(&path, r#"{"task":"1+1=","meta":{"final":2}}"#)?;
/// let columns = Columns {
///     prompt: Some("task".into()),
///     answer: Some("meta.final".into()),
///     ..Columns::default()
/// };
/// let prompts = DataReader::new(columns).with_system_prompt("Add.").prompts(&path)?;
/// assert_eq!(prompts[0].answer, "2");
/// assert_eq!(prompts[0].messages[0].role, "system");
/// # std::fs::remove_file(path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DataReader {
    columns: Columns,
    system_prompt: Option<String>,
}

impl DataReader {
    /// Reads files with these columns.
    pub fn new(columns: Columns) -> Self {
        Self { columns, system_prompt: None }
    }

    /// Puts a system message before the messages of problems and worked solutions that have none.
    #[must_use]
    pub fn with_system_prompt(mut self, system_prompt: impl Into<String>) -> Self {
        self.system_prompt = Some(system_prompt.into());
        self
    }

    /// Reads problems.
    ///
    /// A row has a prompt (text, or a list of `{role, content}` messages) and a reference answer, at the places that [`Columns`] names.
    /// `guidance` is kept; the id is `FILE:LINE` (in Parquet `FILE:ROW`) where the row has none; all other columns go to
    /// [`Prompt::extra`].
    ///
    /// # Errors
    /// Names the file and the row that cannot be read, and both rows of a duplicate id. A row with two references (or prompts)
    /// that differ is refused, unless the map of columns says which one is meant.
    pub fn prompts(&self, path: &Path) -> Result<Vec<Prompt>, DataError> {
        let mut seen: HashMap<String, RowPlace> = HashMap::new();
        read_rows(path, |place, row| {
            let mut prompt = prompt_of(row, &self.columns, &default_id(path, place))?;
            messages::with_system_prompt(&mut prompt.messages, self.system_prompt.as_deref());
            if let Some(first) = seen.insert(prompt.id.clone(), place) {
                return Err(format!(
                    "id `{}` was already used on {first}; ids must be unique, and data.columns.id says where they are",
                    prompt.id
                ));
            }
            Ok(prompt)
        })
    }

    /// Reads worked solutions: messages whose last one is the assistant's, or a prompt with a completion, which is text or a
    /// list of one message of the assistant.
    ///
    /// # Errors
    /// Names the file and the row that cannot be read. A row with both forms is refused where they differ.
    pub fn worked_solutions(&self, path: &Path) -> Result<Vec<WorkedSolution>, DataError> {
        read_rows(path, |_, row| {
            let mut solution = solution_of(&row, &self.columns)?;
            messages::with_system_prompt(&mut solution.messages, self.system_prompt.as_deref());
            Ok(solution)
        })
    }

    /// Reads completions to grade: the reference as in [`DataReader::prompts`] or in `gold`, and the completion in `completion` or
    /// `pred`, which may be left out. Ids may repeat, since a problem may have many completions. No system prompt is added.
    ///
    /// # Errors
    /// Names the file and the row that cannot be read.
    pub fn completions(&self, path: &Path) -> Result<Vec<CompletionRow>, DataError> {
        read_rows(path, |place, row| completion_row(row, &self.columns, &default_id(path, place)))
    }
}

/// [`DataReader::prompts`] of a reader without a map of columns.
///
/// # Errors
/// As there.
pub fn read_prompts(path: &Path) -> Result<Vec<Prompt>, DataError> {
    DataReader::default().prompts(path)
}

/// [`DataReader::worked_solutions`] of a reader without a map of columns.
///
/// # Errors
/// As there.
pub fn read_worked_solutions(path: &Path) -> Result<Vec<WorkedSolution>, DataError> {
    DataReader::default().worked_solutions(path)
}

/// [`DataReader::completions`] of a reader without a map of columns.
///
/// # Errors
/// As there.
pub fn read_completions(path: &Path) -> Result<Vec<CompletionRow>, DataError> {
    DataReader::default().completions(path)
}

#[cfg(test)]
mod tests;
