package main

import (
	"go.temporal.io/sdk/worker"

	"tidewait/internal/release"
)

// deployment is the name of all workers in Temporal's lists.
const deployment = "tidewait"

// build tells Temporal which build works: its histories and its lists of pollers
// name it. Workers stay unversioned, so that one of the next release may go on with
// the workflows of this one; that it can is what replay tests are for.
func build() worker.DeploymentOptions {
	return worker.DeploymentOptions{Version: worker.WorkerDeploymentVersion{DeploymentName: deployment, BuildID: release.BuildID()}}
}
