package render_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/render"
	"tidewait/internal/wadm"
)

const noHost = "no host of lattice default has been observed yet; nothing is started until one appears"

func neverObserved() wadm.StatusInfo {
	return wadm.StatusInfo{Type: wadm.Waiting, Message: noHost, Reason: "never_observed", Since: ptr(at("12:19:05"))}
}

func applications() []wadm.Summary {
	return []wadm.Summary{
		{Name: "hello", Version: "v2", Description: ptr("says\nhello"), DeployedVersion: ptr("v1"), DetailedStatus: wadm.Status{Status: neverObserved()}},
		{Name: "quiet", DetailedStatus: wadm.NotDeployed()},
		{Name: "named", Version: "v1", DeployedVersion: ptr(""), DetailedStatus: wadm.Status{Status: wadm.StatusInfo{Type: wadm.Deployed}}},
	}
}

func TestApplications(t *testing.T) {
	require.Equal(t, `NAME   LATEST  DEPLOYED  STATUS      SINCE                   WHY                                                                                     DESCRIPTION
hello  v2      v1        waiting     12:19:05Z (41 min ago)  no host of lattice default has been observed yet; nothing is started until one appears  says hello
quiet  ""      -         undeployed  -                       -                                                                                       -
named  v1      ""        deployed    -                       -                                                                                       -
`, plainText.Applications("default", applications()))
	require.Equal(t, "no applications in lattice east\n", plainText.Applications("east", nil))
}

func TestApplicationsOnATerminal(t *testing.T) {
	o := render.Options{Now: now, Width: 120, Colour: true}
	require.Equal(t, "\x1b[1mNAME\x1b[0m   \x1b[1mLATEST\x1b[0m  \x1b[1mDEPLOYED\x1b[0m  \x1b[1mSTATUS\x1b[0m   \x1b[1mSINCE\x1b[0m                   "+
		"\x1b[1mWHY\x1b[0m                                                           \x1b[1mDESCRIPTION\x1b[0m\n"+
		"hello  v2      v1        \x1b[33mwaiting\x1b[0m  12:19:05Z (41 min ago)  "+
		"no host of lattice default has been observed yet; nothing i…  says hello\n",
		o.Applications("default", applications()[:1]))
}

func TestApplicationChanges(t *testing.T) {
	before := applications()
	after := applications()
	require.Empty(t, plainText.ApplicationChanges(before, after))
	after[0].DetailedStatus.Status = wadm.StatusInfo{Type: wadm.Reconciling, Message: "scaling on 1 host"}
	after[1].DeployedVersion, after[1].DetailedStatus.Status = ptr("v3"), neverObserved()
	after[2] = wadm.Summary{Name: "new", Version: "v1", DetailedStatus: wadm.NotDeployed()}
	require.Equal(t, []string{
		"13:00:07Z  hello is now reconciling: scaling on 1 host",
		"13:00:07Z  quiet is now waiting: " + noHost + `, latest version "", deployed v3`,
		"13:00:07Z  new is undeployed, latest version v1, none deployed",
		"13:00:07Z  named is deleted",
	}, plainText.ApplicationChanges(before, after))
}

func TestApplicationStatus(t *testing.T) {
	require.Equal(t, `application hello in lattice default   waiting · waiting for a host   41 min, no bound
  why     never_observed: no host of lattice default has been observed yet; nothing is started until one appears
  since   12:19:05Z (41 min ago)
  you can start a host in the lattice that suits
          see which hosts there are, and what they run: tidewait lattice show default
          try now: tidewait app nudge hello --lattice default
          give up: tidewait app undeploy hello --lattice default

KIND          NAME         STATUS   MESSAGE
SpreadScaler  hello-http   waiting  no host of lattice default has been observed yet; nothing is started until one appears
ConfigScaler  hello-plain  waiting  no host of lattice default has been observed yet; nothing is started until one appears
`, plainText.ApplicationStatus("default", "hello", wadm.AllWaiting([]wadm.ScalerStatus{
		{ID: "1", Kind: "SpreadScaler", Name: "hello-http"}, {ID: "2", Kind: "ConfigScaler", Name: "hello-plain"},
	}, "never_observed", noHost, at("12:19:05")), nil))

	require.Equal(t, "application hello in lattice default   undeployed\n", plainText.ApplicationStatus("default", "hello", wadm.NotDeployed(), nil))

	failing := wadm.StatusInfo{
		Type: wadm.Failed, Message: "no such image", Reason: "command_failed", Since: ptr(at("12:59:37")), Attempt: 3, NextAttempt: ptr(at("13:00:37")),
	}
	status := wadm.NewStatus(failing, []wadm.ScalerStatus{{Kind: "SpreadScaler", Name: "hello-http", Status: failing}})
	status.Trimmed = true
	detail := &api.AppDetail{Acts: []api.Act{
		{Verb: "deploy", Actor: "ann@desk", Version: ptr("v2"), Via: api.ViaWadm, At: at("12:59:36")},
		{Verb: "nudge", Via: api.ViaTemporal, At: at("13:00:00")},
	}}
	require.Equal(t, `application hello in lattice default   failed · backing off   30 s, no bound
  why     command_failed: no such image
  since   12:59:37Z (30 s ago)
  tries   3 failed, next 13:00:37Z (in 30 s)
  you can mend what the host complains of, then try now
          try now: tidewait app nudge hello --lattice default
          give up: tidewait app undeploy hello --lattice default
  deploy  by ann@desk, 12:59:36Z (31 s ago), version v2
  nudge   by somebody through the Temporal API, 13:00:00Z (7 s ago)
  scalers left out: with them the reply would have been too large

KIND          NAME        STATUS  MESSAGE
SpreadScaler  hello-http  failed  no such image (tries: 3 so far, next 13:00:37Z (in 30 s))
`, plainText.ApplicationStatus("default", "hello", status, detail))
}

func TestVersions(t *testing.T) {
	require.Equal(t, `VERSION  DEPLOYED
v10      -
v2       yes
""       -
`, plainText.Versions([]wadm.VersionInfo{{Version: "v10"}, {Version: "v2", Deployed: true}, {}}, nil))
	require.Equal(t, `VERSION  DEPLOYED
v1       -

WHEN                  ACT       VERSION  BY                             NOTE
12:59:00Z (67 s ago)  deploy    v1       ann@desk                       -
13:00:00Z (7 s ago)   undeploy  -        somebody through the wadm API  -
`, plainText.Versions([]wadm.VersionInfo{{Version: "v1"}}, []api.Act{
		{Verb: "deploy", Actor: "ann@desk", Version: ptr("v1"), Via: api.ViaWadm, At: at("12:59:00")},
		{Verb: "undeploy", Via: api.ViaWadm, At: at("13:00:00")},
	}))
	require.Equal(t, "no versions\n", plainText.Versions(nil, nil))
}

func TestImport(t *testing.T) {
	row := func(version, what, why string, was, is bool) render.ImportRow {
		return render.ImportRow{
			Lattice: "default", Application: "hello", WasDeployed: was, IsDeployed: is,
			ImportedVersion: api.ImportedVersion{Version: version, What: what, Why: why},
		}
	}
	require.Equal(t, `LATTICE  APPLICATION  VERSION  WHAT     DEPLOYED  WHY
default  hello        v1       kept     yes       -
default  hello        v2       added    -         -
default  hello        v3       refused  not here  weights sum to 0
`, plainText.Import([]render.ImportRow{
		row("v1", "kept", "", true, true), row("v2", "added", "", false, false), row("v3", "refused", "weights sum to 0", true, false),
	}))
}
