//! The job of a question to a model in the real worker process.

use belljar_wire::{FromWorker, Job, ModelJob, ModelOutput, ModelProtocol};

use super::worker::Worker;

#[test]
fn worker_reports_the_named_failure_of_a_question_and_exits() {
    let mut worker = Worker::start();
    worker.send(&Job::Model(ModelJob {
        protocol: ModelProtocol::Anthropic,
        url: None,
        model: "m".to_owned(),
        key_variable: Some("NO_SUCH_VARIABLE".to_owned()),
        system: None,
        prompt: "Say it.".to_owned(),
        inputs: Vec::new(),
        output: ModelOutput::Text,
        max_tokens: 100,
        window: None,
        cuts: false,
        tools: None,
    }));
    let Some(FromWorker::Done(done)) = worker.next() else { panic!("the worker has no result") };
    assert!(done.value.is_none());
    let error = done.trouble.unwrap();
    assert_eq!(error.name, "bad_key");
    assert_eq!(error.message, "the box has no variable `NO_SUCH_VARIABLE` with the key");
    assert!(worker.next().is_none(), "no message follows the result");
    assert!(worker.child.wait().unwrap().success());
}
