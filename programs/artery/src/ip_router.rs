//! The IPRouter of a running router, as commands read and write it.
use crate::control_socket::Client;
use crate::load::{Reading, load};
use crate::options::Reach;
use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use serde_json::Value;

/// Which router, and which IPRouter in it.
#[derive(Args)]
pub(crate) struct RouterReach {
    #[command(flatten)]
    pub(crate) reach: Reach,
    /// The IPRouter, where there are several
    #[arg(short = 'e', long, value_name = "NAME")]
    element: Option<String>,
}

impl RouterReach {
    /// The only IPRouter of a router.
    pub(crate) fn of(reach: Reach) -> RouterReach {
        RouterReach { reach, element: None }
    }
}

/// An IPRouter that runs.
pub(crate) struct IpRouter {
    client: Client,
    name: String,
    /// Names of packet filters in the same router.
    filters: Vec<String>,
}

impl IpRouter {
    /// Connects to the router and finds the element.
    pub(crate) fn find(reach: &RouterReach) -> anyhow::Result<IpRouter> {
        IpRouter::find_class(reach, CLASS)
    }

    /// The same for an element of another class that belongs to a router.
    pub(crate) fn find_class(reach: &RouterReach, class: &str) -> anyhow::Result<IpRouter> {
        let mut client = Client::connect(&reach.reach)?;
        let elements = elements(&mut client)?;
        let name = choose_element(&elements, class, reach.element.as_deref(), "-e")?;
        let filters = elements.into_iter().filter(|element| element.class == FILTER);
        Ok(IpRouter { client, name, filters: filters.map(|filter| filter.name).collect() })
    }

    /// The packet filters in the same router, which are not part of its IPRouter.
    pub(crate) fn filters(&self) -> &[String] {
        &self.filters
    }

    /// What a handler says with JSON.
    pub(crate) fn query(&mut self, handler: &str, parameters: &str) -> anyhow::Result<Value> {
        let text = self.client.query(&format!("{}.{handler}", self.name), parameters)?;
        serde_json::from_str(&text)
            .with_context(|| format!("what the router says by {handler} makes no sense"))
    }

    /// What another element of the router says by a handler of copies on all workers, which
    /// each say a document.
    pub(crate) fn query_element(
        &mut self,
        element: &str,
        handler: &str,
        parameters: &str,
    ) -> anyhow::Result<Vec<Value>> {
        let text = self.client.query(&format!("{element}.{handler}"), parameters)?;
        let documents = text.lines().filter(|line| !line.is_empty()).map(serde_json::from_str);
        documents
            .collect::<Result<_, _>>()
            .with_context(|| format!("what {element} says by {handler} makes no sense"))
    }

    /// The names of the router's elements of a class.
    pub(crate) fn of_class(&mut self, class: &str) -> anyhow::Result<Vec<String>> {
        let elements = elements(&mut self.client)?.into_iter();
        Ok(elements.filter(|element| element.class == class).map(|element| element.name).collect())
    }

    /// Has a handler change something.
    pub(crate) fn write(&mut self, handler: &str, text: &str) -> anyhow::Result<()> {
        self.client.write_plain(&format!("{}.{handler}", self.name), text)
    }
}

/// The class of the element.
const CLASS: &str = "IPRouter";
/// The class of packet filters around it.
const FILTER: &str = "PacketFilter";

/// An element of a running router.
pub(crate) struct Element {
    pub(crate) name: String,
    pub(crate) class: String,
    pub(crate) config: String,
}

/// The elements of a running router, in the order of its configuration.
pub(crate) fn elements(client: &mut Client) -> anyhow::Result<Vec<Element>> {
    let loaded = load("the router's configuration", &client.read("flatconfig")?, &Reading::default());
    if !loaded.compiled {
        return Err(anyhow!(
            "the router's configuration makes no sense to this program; is it of another version?"
        ));
    }
    let nodes = loaded.ir.nodes.into_iter();
    Ok(nodes.map(|node| Element { name: node.name, class: node.class, config: node.config }).collect())
}

/// The element of a class that is wanted, or the only one; `option` is how the user says which.
pub(crate) fn choose_element(
    elements: &[Element],
    class: &str,
    wanted: Option<&str>,
    option: &str,
) -> anyhow::Result<String> {
    let of_class = elements.iter().filter(|element| element.class == class);
    let names: Vec<&str> = of_class.map(|element| element.name.as_str()).collect();
    match (wanted, &names[..]) {
        (Some(wanted), _) if names.contains(&wanted) => Ok(wanted.to_string()),
        (_, []) => bail!("this router has no {class}; 'artery show elements' lists what it has"),
        (Some(wanted), _) => {
            bail!("'{wanted}' is not of class {class}; those of that class are: {}", names.join(", "))
        }
        (None, [one]) => Ok((*one).to_string()),
        (None, _) => {
            bail!("there are several of class {class}, say which by {option}: {}", names.join(", "))
        }
    }
}

/// A part of a document as text; empty where there is none.
pub(crate) fn text(value: &Value, key: &str) -> String {
    match &value[key] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A list in a document.
pub(crate) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}
