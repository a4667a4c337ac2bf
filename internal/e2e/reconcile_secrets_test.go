package e2e

import (
	"encoding/json"
	"strings"

	"github.com/stretchr/testify/require"

	"tidewait/internal/api"
	"tidewait/internal/simhost"
	"tidewait/internal/wadm"
)

// policy says how a backend is asked for secrets.
func policy(name string, properties object) object {
	return object{"name": name, "type": "policy.secret.wasmcloud.dev/v1alpha1", "properties": properties}
}

// secret refers to a secret of a backend.
func secret(name, policy, key string, more ...string) object {
	properties := object{"policy": policy, "key": key}
	for _, field := range more {
		name, value, _ := strings.Cut(field, "=")
		properties[name] = value
	}
	return object{"name": name, "properties": properties}
}

// vaulted is an application whose component, provider and link read secrets.
func vaulted(version, tokenKey string) object {
	listen := link("web", config("listen", "8080"))
	properties := listen["properties"].(object)
	properties["source"].(object)["secrets"] = []object{secret("listen.key", "plain", "tls/listen")}
	properties["target"].(object)["secrets"] = []object{secret("ledger-url", "vault", "payments/ledger", "field=url", "version=3")}
	web := component("web", webImage, instances(2))
	with(web, "config", []object{config("settings", "EUR"), {"name": "outside"}})
	with(web, "secrets", []object{secret("api-token", "vault", tokenKey, "field=token")})
	http := with(provider("http", httpImage, listen), "secrets", []object{secret("tls-key", "plain", "tls/http")})

	m := manifest("vaulted", version, web, http)
	m["spec"].(object)["policies"] = []object{
		policy("vault", object{"backend": "vault-prod", "mount": "kv", "role": "<pay&go>"}), policy("plain", object{"backend": "nats-kv"}),
	}
	return m
}

const (
	vaultPolicy = `{"type":"properties.secret.wasmcloud.dev/v1alpha1","properties":{"mount":"kv","role":"<pay&go>"}}`
	plainPolicy = `{"type":"properties.secret.wasmcloud.dev/v1alpha1","properties":{}}`
)

// vaultedSecrets are the references to secrets that vaulted makes, as hosts read
// them.
var vaultedSecrets = map[string]map[string]string{
	"SECRET_vaulted-api_token": {
		"name": "api-token", "type": "secret.wasmcloud.dev/v1alpha1", "backend": "vault-prod",
		"key": "payments/provider", "field": "token", "policy": vaultPolicy,
	},
	"SECRET_vaulted-tls_key": {
		"name": "tls-key", "type": "secret.wasmcloud.dev/v1alpha1", "backend": "nats-kv", "key": "tls/http", "policy": plainPolicy,
	},
	"SECRET_vaulted-listen_key": {
		"name": "listen.key", "type": "secret.wasmcloud.dev/v1alpha1", "backend": "nats-kv", "key": "tls/listen", "policy": plainPolicy,
	},
	"SECRET_vaulted-ledger_url": {
		"name": "ledger-url", "type": "secret.wasmcloud.dev/v1alpha1", "backend": "vault-prod",
		"key": "payments/ledger", "field": "url", "version": "3", "policy": vaultPolicy,
	},
}

// readsSecrets: hosts are told where secrets are and which application asks for
// them, and a host that cannot have them says so.
func readsSecrets(s *site) {
	s.l.Script(simhost.Rule{Image: webImage, Claims: &simhost.Claims{Subject: "MWEB", Issuer: "AACME"}}) // only signed ones get secrets
	s.host("bare")
	s.deploy(vaulted("v1", "payments/provider"))

	// What somebody else has to make is waited for, and everything else is done.
	const outside = "configuration outside does not exist in the lattice and is not the application's to make"
	const noSecrets = "Unable to fetch requested secrets: secret store not configured, could not fetch secrets"
	got := s.until("vaulted", "told what is missing and what the host says", func(got wadm.Status) bool {
		return len(got.Scalers) == 3 && got.Scalers[0].Status.Reason == "config_missing" && got.Scalers[2].Status.Type == wadm.Failed
	})
	require.Equal(s.t, wadm.StatusInfo{
		Type: wadm.Waiting, Message: outside, Reason: "config_missing", Since: got.Scalers[0].Status.Since,
	}, got.Scalers[0].Status)
	require.Equal(s.t, noSecrets, strings.SplitN(got.Scalers[2].Status.Message, " (attempt ", 2)[0])
	s.waitIs("vaulted", "backoff", "command_failed")
	for name, want := range vaultedSecrets {
		values, _ := s.l.Config(name)
		require.Equal(s.t, want, values, name)
		require.Equal(s.t, 1, s.told()["config.put "+name], name)
	}
	require.Zero(s.t, s.told()["component.scale vaulted-web"], "what lacks a configuration is not started")

	// It appears, and the host cannot run what reads secrets; one that can joins.
	s.command0("config.put.outside", object{"anything": "at all"})
	got = s.until("vaulted", "failed by the component, too", func(got wadm.Status) bool {
		return len(got.Scalers) == 3 && got.Scalers[0].Status.Type == wadm.Failed
	})
	require.Equal(s.t, noSecrets, strings.SplitN(got.Scalers[0].Status.Message, " (attempt ", 2)[0])
	able, err := s.l.Start(s.t.Context(), simhost.HostSpec{Name: "able", Secrets: true})
	require.NoError(s.t, err)
	s.becomes("vaulted", wadm.Deployed)
	require.Equal(s.t, map[string]map[string]int{"bare": {}, "able": {"vaulted-web": 2, "vaulted-http": 1}}, s.places())
	require.Equal(s.t, 0, s.count("SELECT count(*) FROM open_waits WHERE workflow_id = '"+s.workflowID("vaulted")+"'"))

	// What hosts get of it: plain configurations first, then references.
	require.Equal(s.t, object{
		"component_ref": "registry.example.com/web:1", "component_id": "vaulted-web", "count": 2.0, "host_id": able.ID(), "allow_update": false,
		"config": []any{"vaulted-settings", "outside", "SECRET_vaulted-api_token"},
		"annotations": object{
			"wasmcloud.dev/managed-by": "wadm", "wasmcloud.dev/appspec": "vaulted", "wasmcloud.dev/spread_name": "default",
			"wasmcloud.dev/scaler": "589ea2d9e9694645effa19d9b8d4b31aaf9ec16c5479a92ad4c71495ee91ac3b",
		},
	}, s.lastTold("component.scale", "vaulted-web"))
	require.Equal(s.t, object{
		"provider_ref": "registry.example.com/http:1", "provider_id": "vaulted-http", "host_id": able.ID(),
		"config": []any{"SECRET_vaulted-tls_key"},
		"annotations": object{
			"wasmcloud.dev/managed-by": "wadm", "wasmcloud.dev/appspec": "vaulted", "wasmcloud.dev/spread_name": "default",
			"wasmcloud.dev/scaler": "ef644c98b562cb140564479f38a1936174ba0262054d744d014677c800a9bda1",
		},
	}, s.lastTold("provider.start", "vaulted-http"))
	require.Equal(s.t, []simhost.Link{{
		Source: "vaulted-http", Target: "vaulted-web", Name: "default", Namespace: "wasi", Package: "http", Interfaces: []string{"incoming-handler"},
		SourceConfig: []string{"vaulted-listen", "SECRET_vaulted-listen_key"}, TargetConfig: []string{"SECRET_vaulted-ledger_url"},
	}}, s.l.Links())

	// A reference that says the same in other letters is left alone, and one that
	// somebody deletes is made again, without a restart.
	s.l.Forget()
	same := object{}
	for key, value := range vaultedSecrets["SECRET_vaulted-tls_key"] {
		same[key] = value
	}
	same["policy"] = `{ "properties": {}, "type": "properties.secret.wasmcloud.dev/v1alpha1" }`
	s.command0("config.put.SECRET_vaulted-tls_key", same)
	s.command0("config.del.SECRET_vaulted-api_token", nil)
	s.eventually("the reference is made again", func() bool {
		_, there := s.l.Config("SECRET_vaulted-api_token")
		return there
	}, func() any { return s.told() })
	s.settles("vaulted")
	s.becomes("vaulted", wadm.Deployed)
	require.Equal(s.t, map[string]int{
		"config.put SECRET_vaulted-tls_key": 1, "config.del SECRET_vaulted-api_token": 1, "config.put SECRET_vaulted-api_token": 1,
	}, s.told(), "two of them are the stranger's")

	// Another key is another reference, under the same name.
	s.l.Forget()
	s.deploy(vaulted("v2", "payments/other"))
	s.eventually("the new reference is there", func() bool {
		values, _ := s.l.Config("SECRET_vaulted-api_token")
		return values["key"] == "payments/other"
	}, func() any { return s.told() })
	s.becomes("vaulted", wadm.Deployed)
	require.Equal(s.t, map[string]int{"config.put SECRET_vaulted-api_token": 1}, s.told())

	s.undeploy("vaulted")
	s.empties()
	for name := range vaultedSecrets {
		_, there := s.l.Config(name)
		require.False(s.t, there, name)
	}
	_, there := s.l.Config("outside")
	require.True(s.t, there, "it is somebody else's")
	s.lacksPolicy()
}

// lacksPolicy: put refuses a document that names no policy for a secret. Of one
// that is stored all the same, the reference is somebody else's to make.
func (s *site) lacksPolicy() {
	s.t.Helper()
	orphan := manifest("orphan", "v1", with(component("web", webImage, instances(1)), "secrets", []object{secret("api-token", "vault", "k")}))
	document, err := json.Marshal(orphan)
	require.NoError(s.t, err)
	_, err = s.api.Put(s.ctx(), document)
	require.ErrorContains(s.t, err, `secret "api-token" names the policy "vault", which is not in spec.policies`)

	orphan["spec"].(object)["policies"] = []object{policy("vault", object{"backend": "b"})}
	s.put(orphan)
	_, err = s.db.Exec(s.ctx(), `UPDATE application_versions v SET manifest = (manifest::jsonb #- '{spec,policies}')::json
		FROM applications a WHERE a.id = v.application_id AND a.lattice = $1 AND a.name = 'orphan'`, s.name)
	require.NoError(s.t, err)
	_, err = s.api.Deploy(s.ctx(), "orphan", nil)
	require.NoError(s.t, err)
	const missing = "the reference to secret SECRET_orphan-api_token does not exist in the lattice, and the application names no policy to make it from"
	got := s.until("orphan", "waiting for a secret", func(got wadm.Status) bool { return got.Status.Reason == "secret_missing" })
	require.Equal(s.t, []any{wadm.Waiting, missing}, []any{got.Status.Type, got.Status.Message})
	s.waitIs("orphan", "dependency", "secret_missing")
	s.command0("config.put.SECRET_orphan-api_token", object{
		"name": "api-token", "type": "secret.wasmcloud.dev/v1alpha1", "backend": "b", "key": "k", "policy": plainPolicy,
	})
	s.until("orphan", "no longer waiting for it", func(got wadm.Status) bool { return got.Status.Reason != "secret_missing" })
	s.becomes("orphan", wadm.Deployed)
	s.undeploy("orphan")
	s.empties()
	_, there := s.l.Config("SECRET_orphan-api_token")
	require.True(s.t, there, "it is somebody else's")
}

// waitIs waits until an application's one wait is of a kind and a code, and
// returns it.
func (s *site) waitIs(app, kind, code string) api.Wait {
	s.t.Helper()
	var all []api.Wait
	s.eventually(app+" waits for "+code, func() bool {
		var list api.WaitList
		require.NoError(s.t, jsonOf(s.must("waits", "--lattice", s.name, "-o", "json"), &list))
		all = nil
		for _, w := range list.Waits {
			if w.Application == app {
				all = append(all, w)
			}
		}
		return len(all) == 1 && all[0].Kind == kind && all[0].Code == code
	}, func() any { return all })
	return all[0]
}

// lastTold returns the body of the last command of a kind about something.
func (s *site) lastTold(command, id string) object {
	s.t.Helper()
	var body object
	for _, c := range s.calls() {
		if c.Command == command && c.ID == id {
			body = nil
			require.NoError(s.t, json.Unmarshal(c.Body, &body))
		}
	}
	return body
}
