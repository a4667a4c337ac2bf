package wadm_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/wadm"
)

func TestSubjects(t *testing.T) {
	require.Equal(t, "wadm.api.default.model.list", wadm.Subject("wadm.api", "default", wadm.OpList, ""))
	require.Equal(t, "wadm.api.default.model.get.shop-front", wadm.Subject("wadm.api", "default", wadm.OpGet, "shop-front"))
	require.Equal(t, "my.own.api.eu.model.del.a", wadm.Subject("my.own.api", "eu", wadm.OpDelete, "a"))
	require.Equal(t, "wadm.status.default.shop", wadm.StatusSubject("", "default", "shop"))
	require.Equal(t, "AB12.wadm.status.default.shop", wadm.StatusSubject("AB12", "default", "shop"))
	require.Equal(t, "wadm.evt.default.manifest_published", wadm.EventSubject("", "default", "manifest_published"))
	require.Equal(t, "AB12.wadm.evt.default.manifest_unpublished", wadm.EventSubject("AB12", "default", "manifest_unpublished"))
}

func TestWordsOfTheProtocol(t *testing.T) {
	require.Equal(t, "wadm.api", wadm.DefaultPrefix)
	require.Equal(t, "default", wadm.DefaultLattice)
	require.Equal(t, "wadm_server", wadm.QueueGroup)
	require.Equal(t, "wadm_status", wadm.StatusStream)
	require.Equal(t, "Content-Type", wadm.HeaderContentType)
	require.Equal(t,
		[]wadm.Operation{"list", "get", "put", "del", "versions", "deploy", "undeploy", "status", "history"},
		[]wadm.Operation{
			wadm.OpList, wadm.OpGet, wadm.OpPut, wadm.OpDelete, wadm.OpVersions, wadm.OpDeploy, wadm.OpUndeploy,
			wadm.OpStatus, wadm.OpHistory,
		})
	require.Equal(t,
		[]string{"error", "success", "notfound", "created", "newversion", "deleted", "noop", "acknowledged", "ok"},
		[]string{
			wadm.ResultError, wadm.ResultSuccess, wadm.ResultNotFound, wadm.ResultCreated, wadm.ResultNewVersion,
			wadm.ResultDeleted, wadm.ResultNoop, wadm.ResultAcknowledged, wadm.ResultOK,
		})
}

// Keys, their order and what is left out, as the server of wadm 0.21.1 writes
// them; the last cases of a kind are with the additions.
func TestReplies(t *testing.T) {
	v2 := "v2"
	notDeployed := wadm.NotDeployed()
	for _, c := range []struct {
		about string
		reply any
		want  string
	}{
		{"error", wadm.Error{Result: wadm.ResultError, Message: "version v2 already exists"}, `{"result":"error","message":"version v2 already exists"}`},

		{
			"get",
			wadm.GetReply{Result: wadm.ResultSuccess, Message: "m", Manifest: json.RawMessage(`{"kind":"Application"}`)},
			`{"result":"success","message":"m","manifest":{"kind":"Application"}}`,
		},
		{"get of nothing", wadm.GetReply{Result: wadm.ResultNotFound, Message: "m"}, `{"result":"notfound","message":"m"}`},

		{"list of nothing", wadm.ListReply{Result: wadm.ResultSuccess, Message: "m"}, `{"result":"success","message":"m","models":[]}`},
		{
			"list of nothing, made",
			wadm.ListReply{Result: wadm.ResultSuccess, Message: "m", Models: []wadm.Summary{}},
			`{"result":"success","message":"m","models":[]}`,
		},
		{
			"list",
			wadm.ListReply{Result: wadm.ResultSuccess, Message: "m", Models: []wadm.Summary{wadm.Summarize("a", "v1", nil, nil, notDeployed)}},
			`{"result":"success","message":"m","models":[{"name":"a","version":"v1","description":null,"deployed_version":null,` +
				`"detailed_status":{"status":{"type":"undeployed"},"version":"","components":[]},"status":"undeployed","status_message":""}]}`,
		},
		{
			"list that did not fit",
			wadm.ListReply{Result: wadm.ResultSuccess, Message: "m", Total: 7, Next: "a"},
			`{"result":"success","message":"m","models":[],"total":7,"next":"a"}`,
		},

		{
			"put",
			wadm.PutReply{Result: wadm.ResultCreated, TotalVersions: 1, CurrentVersion: "v1", Message: "m", Name: "a"},
			`{"result":"created","total_versions":1,"current_version":"v1","message":"m","name":"a"}`,
		},
		{
			"put with warnings",
			wadm.PutReply{
				Result: wadm.ResultNewVersion, TotalVersions: 2, CurrentVersion: "v2", Message: "m", Name: "a",
				Warnings: []wadm.Warning{{Rule: "r", Path: "p", Line: 3, Message: "w"}, {Rule: "r", Message: "w"}},
			},
			`{"result":"newversion","total_versions":2,"current_version":"v2","message":"m","name":"a",` +
				`"warnings":[{"rule":"r","path":"p","line":3,"message":"w"},{"rule":"r","message":"w"}]}`,
		},

		{
			"versions",
			wadm.VersionsReply{Result: wadm.ResultSuccess, Message: "m", Versions: []wadm.VersionInfo{{Version: "v1", Deployed: true}, {Version: "v2"}}},
			`{"result":"success","message":"m","versions":[{"version":"v1","deployed":true},{"version":"v2","deployed":false}]}`,
		},
		{
			"versions of nothing",
			wadm.VersionsReply{Result: wadm.ResultNotFound, Message: "m"},
			`{"result":"notfound","message":"m","versions":[]}`,
		},
		{
			"versions that did not fit",
			wadm.VersionsReply{Result: wadm.ResultSuccess, Message: "m", Total: 9},
			`{"result":"success","message":"m","versions":[],"total":9}`,
		},

		{
			"delete",
			wadm.DeleteReply{Result: wadm.ResultDeleted, Message: "m", Undeploy: true},
			`{"result":"deleted","message":"m","undeploy":true}`,
		},
		{"delete of nothing", wadm.DeleteReply{Result: wadm.ResultNoop, Message: "m"}, `{"result":"noop","message":"m","undeploy":false}`},

		{
			"deploy",
			wadm.DeployReply{Result: wadm.ResultAcknowledged, Message: "m", Name: "a", Version: &v2},
			`{"result":"acknowledged","message":"m","name":"a","version":"v2"}`,
		},
		{
			"undeploy",
			wadm.DeployReply{Result: wadm.ResultAcknowledged, Message: "m", Name: "a"},
			`{"result":"acknowledged","message":"m","name":"a","version":null}`,
		},

		{
			"status",
			wadm.StatusReply{Result: wadm.ResultOK, Message: "m", Status: &notDeployed},
			`{"result":"ok","message":"m","status":{"status":{"type":"undeployed"},"version":"","components":[]}}`,
		},
		{"status that failed", wadm.StatusReply{Result: wadm.ResultError, Message: "m"}, `{"result":"error","message":"m"}`},
	} {
		t.Run(c.about, func(t *testing.T) {
			require.Equal(t, c.want, encode(t, c.reply))
		})
	}
}

func TestVersionRequests(t *testing.T) {
	for _, body := range []string{`{}`, `{"version":null}`, `{"name":"x"}`} {
		var r wadm.VersionRequest
		require.NoError(t, json.Unmarshal([]byte(body), &r), body)
		require.Nil(t, r.Version, body)
	}
	var r wadm.VersionRequest
	require.NoError(t, json.Unmarshal([]byte(`{"version":"v1"}`), &r))
	require.Equal(t, "v1", *r.Version)
	require.JSONEq(t, `{"version":"v1"}`, encode(t, r))
	require.JSONEq(t, `{}`, encode(t, wadm.VersionRequest{}))
	require.JSONEq(t, `{}`, encode(t, wadm.ListRequest{}))
	require.JSONEq(t, `{"after":"a","limit":5}`, encode(t, wadm.ListRequest{After: "a", Limit: 5}))
}

func TestArraysDecodeNull(t *testing.T) {
	var reply wadm.VersionsReply
	require.NoError(t, json.Unmarshal([]byte(`{"result":"notfound","message":"","versions":null}`), &reply))
	require.Empty(t, reply.Versions)
}
