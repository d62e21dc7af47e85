//! What belongs to the router and outlives its graphs: ports, tables.
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// One value of each type, made when first asked for.
#[derive(Default)]
pub struct Resources(Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl Resources {
    /// The router's value of this type.
    pub fn get<T: Any + Send + Sync + Default>(&self) -> Arc<T> {
        let mut all = self.0.lock().unwrap_or_else(|e| e.into_inner());
        let value = all.entry(TypeId::of::<T>()).or_insert_with(|| Arc::new(T::default()));
        value.clone().downcast().unwrap_or_else(|_| unreachable!("the key is the type"))
    }
    /// Puts the router's value of this type, before anyone asks for it.
    pub fn insert<T: Any + Send + Sync>(&self, value: Arc<T>) {
        self.0.lock().unwrap_or_else(|e| e.into_inner()).insert(TypeId::of::<T>(), value);
    }
}
