//! A report as a page that needs no other file: its charts stand in it.

use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, html};

/// What makes a page of tables readable, on light and dark ground.
const STYLE: &str = "
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; margin: 1rem 0; }
th, td { border: 1px solid #8885; padding: .25rem .6rem; text-align: left; vertical-align: top; }
svg { max-width: 48rem; width: 100%; height: auto; display: block; margin: 1rem 0; }
";

/// The page of a report in Markdown; an image is looked for among the charts, by the name of its file.
pub(super) fn page(markdown: &str, charts: &[(String, String)]) -> String {
    let mut body = String::new();
    html::push_html(&mut body, with_charts(Parser::new_ext(markdown, Options::ENABLE_TABLES), charts));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>Artery: experiments</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n\
         {body}</body>\n</html>\n"
    )
}

/// Puts charts in the place of images; what is written below an image is left out with it.
fn with_charts<'a>(
    events: impl Iterator<Item = Event<'a>>,
    charts: &'a [(String, String)],
) -> impl Iterator<Item = Event<'a>> {
    let chart = |name: &str| charts.iter().find(|(known, _)| known == name).map(|(_, svg)| svg.as_str());
    let mut is_inside = false;
    events.filter_map(move |event| match event {
        Event::Start(Tag::Image { ref dest_url, .. }) => {
            let Some(svg) = chart(dest_url) else { return Some(event) };
            is_inside = true;
            Some(Event::InlineHtml(CowStr::from(svg)))
        }
        Event::End(TagEnd::Image) if is_inside => {
            is_inside = false;
            None
        }
        _ if is_inside => None,
        other => Some(other),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_tables_and_charts_in_it() {
        let charts = [("a.svg".to_string(), "<svg>chart</svg>".to_string())];
        let page = page(
            "# Title\n\n| a | b |\n|---|---|\n| <1> | 2 |\n\n![alt](a.svg)\n\n![else](b.svg)\n",
            &charts,
        );
        for part in ["<h1>Title</h1>", "<td>2</td>", "<svg>chart</svg>", "src=\"b.svg\"", "</html>"] {
            assert!(page.contains(part), "{part} in {page}");
        }
        assert!(!page.contains("alt\"") && !page.contains("src=\"a.svg\""), "{page}");
    }
}
