//! Tables for people: columns as wide as what stands in them.

/// A table in the making.
pub(crate) struct Table<const N: usize> {
    columns: [Column; N],
    rows: Vec<[String; N]>,
    has_header: bool,
}

/// A column: its title, and whether numbers stand in it, which are put to the right.
struct Column {
    title: &'static str,
    is_number: bool,
    width: usize,
}

impl<const N: usize> Table<N> {
    /// A table without rows, by the titles of its columns with `|` between; a title that ends with a colon
    /// is that of a column of numbers.
    pub(crate) fn headed(titles: &'static str) -> Table<N> {
        let mut titles = titles.split('|').map(str::trim);
        let columns = std::array::from_fn(|_| {
            let title = titles.next().expect("a title for each column");
            let (title, is_number) = title.strip_suffix(':').map_or((title, false), |title| (title, true));
            Column { title, is_number, width: title.len() }
        });
        assert_eq!(titles.next(), None, "a column for each title");
        Table { columns, rows: Vec::new(), has_header: true }
    }

    /// Adds a row. Empty cells are shown as a hyphen.
    pub(crate) fn row(&mut self, cells: [String; N]) {
        let shown = cells.map(|cell| if cell.is_empty() { "-".to_string() } else { cell });
        self.add(shown);
    }

    /// Adds a row that continues the one above it: empty cells stay empty.
    pub(crate) fn more(&mut self, cells: [String; N]) {
        self.add(cells);
    }

    fn add(&mut self, cells: [String; N]) {
        for (column, cell) in self.columns.iter_mut().zip(&cells) {
            column.width = column.width.max(cell.chars().count());
        }
        self.rows.push(cells);
    }

    /// The rows that were added since the last time, the first time with titles above them.
    pub(crate) fn drain_text(&mut self) -> String {
        let mut text = String::new();
        if std::mem::take(&mut self.has_header) {
            text += &line(&self.columns, &self.columns.each_ref().map(|column| column.title.to_string()));
        }
        self.rows.drain(..).for_each(|cells| text += &line(&self.columns, &cells));
        text
    }
}

fn line<const N: usize>(columns: &[Column; N], cells: &[String; N]) -> String {
    let cell = |(column, cell): (&Column, &String)| match column.is_number {
        true => format!("{cell:>0$}", column.width),
        false => format!("{cell:<0$}", column.width),
    };
    let cells: Vec<String> = columns.iter().zip(cells).map(cell).collect();
    cells.join("  ").trim_end().to_string() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_contents_and_keep_their_width() {
        let mut table = Table::headed("NAME | N: | LAST");
        let row = |cells: [&str; 3]| cells.map(str::to_string);
        table.row(row(["a-long-name", "1", ""]));
        table.more(row(["", "200", "x"]));
        assert_eq!(table.drain_text(), "NAME           N  LAST\na-long-name    1  -\n             200  x\n");
        table.row(row(["b", "2", "y"]));
        assert_eq!(table.drain_text(), "b              2  y\n");
    }
}
