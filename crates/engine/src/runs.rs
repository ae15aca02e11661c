//! Runs: plans that are carried out task by task and survive a crash.
//!
//! [`plans`] reads plans and checks them against the configuration. The following modules are pure: no
//! I/O, no clock, no threads. A driver gives the machine inputs, records the facts that the machine
//! decides, applies them, and only then carries out the commands.
//!
//! - [`graph`]: the tasks of a plan with their edges as indices.
//! - [`machine`]: the states of tasks and of the run.
//! - [`budget`]: accounts with hard limits.
//! - [`gate`]: the content that the approval of a gate is bound to, and the callers that may approve.
//! - [`facts`]: the ledger events of facts.
//! - [`taint`]: the labels of data, and the grants that they remove.
//! - [`slots`]: the instants at which a schedule is due, and [`due`]: those at which it starts a run.
//!
//! [`host`] carries out one attempt of a task in a process that survives the driver. [`evidence`] tells
//! whether a lost attempt can have had an effect, and [`fence`] lets only one driver work.
//!
//! [`submit`] stores the files of a run ([`files`]) and records that its plan is accepted. [`driver`] is
//! the process that carries out all open runs. [`control`] cancels runs and settles lost attempts,
//! [`resume`] continues open runs, [`requests`] counts their requests, [`rerun`] repeats a part of a run, [`view`] shows runs, [`receipt`]
//! proves a run to others, and [`grants`] lists what a plan reaches. [`gates`] shows the questions of gates
//! and takes the answers of people. [`schedules`] starts plans at given times. `store` derives tables of runs
//! from the ledger, [`rows`] lists runs of plans from them, and [`list`] lists them together with the runs of
//! single commands. [`index`] lists all runs for a server, and [`usage`] adds up what they used. [`tenants`]
//! shows the budget of a tenant, which holds for all its runs together. [`author`] asks a model to write a
//! plan for a goal. [`limits`] are those of one caller for new runs.

pub mod agent_work;
pub mod author;
pub mod budget;
pub mod control;
pub mod driver;
pub mod due;
pub mod evidence;
mod executors;
pub mod facts;
pub mod fence;
pub mod files;
pub mod gate;
pub mod gates;
mod given;
pub mod grants;
pub mod graph;
pub mod host;
pub mod index;
pub mod limits;
pub mod list;
pub mod machine;
pub mod plans;
pub mod receipt;
pub mod requests;
pub mod rerun;
pub mod resume;
pub mod rows;
pub mod schedules;
pub mod slots;
mod store;
mod stubs;
pub mod submit;
pub mod taint;
pub mod tenants;
pub mod usage;
pub mod view;

#[cfg(test)]
mod tests;
