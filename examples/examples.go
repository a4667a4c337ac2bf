// Package examples holds the example documents, so that the demo runs what the
// documentation shows.
package examples

import "embed"

// Missions holds examples/missions.
//
//go:embed missions
var Missions embed.FS

// Apps holds examples/apps.
//
//go:embed apps
var Apps embed.FS
