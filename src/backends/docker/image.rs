//! Finding the image: named once, then known by its id, so that a tag that moves meanwhile changes nothing.

use bollard::Docker;
use bollard::query_parameters::CreateImageOptions;
use futures_util::StreamExt;

use super::config::{DockerConfig, Pull};
use super::connect::{DaemonFacts, Failure, call_error, failure};
use crate::error::{ErrorKind, Result, SkillRuntimeError};
use crate::runtime::Progress;

/// What is needed of an image.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ImageFacts {
    /// `sha256:…` of its configuration.
    pub(super) id: String,
    /// Its environment.
    pub(super) env: Vec<(String, String)>,
    /// Folders it declares as volumes. Each would become a writable folder outside every limit.
    pub(super) volumes: Vec<String>,
}

/// Finds the image, fetching it if that is allowed.
///
/// # Errors
/// [`NotFound`](ErrorKind::NotFound), [`Unavailable`](ErrorKind::Unavailable) (the registry, or an image for another
/// machine), each with the next step.
pub(super) async fn find(
    docker: &Docker,
    config: &DockerConfig,
    facts: &DaemonFacts,
    progress: &dyn Progress,
) -> Result<ImageFacts> {
    let name = config.image.as_str();
    let inspected = match docker.inspect_image(name).await {
        Err(error) if failure(&error) == Failure::Absent => {
            match config.pull {
                Pull::Never => {
                    return Err(SkillRuntimeError::new(
                        ErrorKind::NotFound,
                        format!(
                            "the docker daemon has no image '{name}'; fetch it (`docker pull {name}`), or set runtime_config['pull'] to 'missing'"
                        ),
                    ));
                }
                Pull::Missing => pull(docker, name, progress).await?,
            }
            docker.inspect_image(name).await
        }
        other => other,
    };
    let image = inspected.map_err(|error| call_error("show the image", error))?;
    let architecture = image.architecture.unwrap_or_default();
    if image.os.as_deref().is_some_and(|os| os != "linux")
        || (!architecture.is_empty() && architecture != facts.architecture)
    {
        return Err(SkillRuntimeError::new(
            ErrorKind::Unavailable,
            format!(
                "image '{name}' is for {architecture}, the docker daemon's machine is linux {}; choose an image for it",
                facts.architecture
            ),
        ));
    }
    let settings = image.config.unwrap_or_default();
    Ok(ImageFacts {
        id: image
            .id
            .ok_or_else(|| SkillRuntimeError::new(ErrorKind::Backend, "the docker daemon gave no id for the image"))?,
        env: settings
            .env
            .unwrap_or_default()
            .iter()
            .filter_map(|pair| pair.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())))
            .collect(),
        volumes: settings.volumes.unwrap_or_default(),
    })
}

async fn pull(docker: &Docker, name: &str, progress: &dyn Progress) -> Result<()> {
    progress.working(&format!("pulling image {name}"));
    let options = CreateImageOptions { from_image: Some(name.to_owned()), ..Default::default() };
    let mut steps = docker.create_image(Some(options), None, None);
    let mut outcome = Ok(());
    while let Some(step) = steps.next().await {
        match step {
            Ok(info) => {
                if let (Some(id), Some(status)) = (info.id, info.status) {
                    progress.working(&format!("pulling image {name}: layer {id}: {status}"));
                }
            }
            Err(error) => {
                outcome = Err(SkillRuntimeError::new(
                    ErrorKind::Unavailable,
                    format!("image '{name}' could not be pulled; check its name and that the daemon reaches its registry, or load it (`docker load`)"),
                )
                .caused_by(error));
                break;
            }
        }
    }
    progress.done();
    outcome
}
