package oam_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/oam"
)

// lines are the findings of a YAML document, one a line.
func lines(t *testing.T, src string) []string {
	t.Helper()
	var lines []string
	for _, f := range parse(t, src, oam.YAML).Validate() {
		lines = append(lines, f.String())
	}
	return lines
}

// spec is a document with a list of components in block style.
func spec(components string) string {
	return "apiVersion: core.oam.dev/v1beta1\nkind: Application\nmetadata: {name: app}\nspec:\n  components:\n" + components
}

const (
	scaled   = "traits: [{type: spreadscaler, properties: {instances: 1}}]"
	policies = "  policies:\n" +
		"  - {name: vault, type: policy.secret.wasmcloud.dev/v1alpha1, properties: {backend: v}}\n" +
		"  - {name: bare, type: policy.secret.wasmcloud.dev/v1alpha1, properties: {}}\n" +
		"  - {name: other, type: policy.example.com/v1, properties: {}}\n"
)

// component is a line of spec's components, with one scaler and other traits.
func component(name, traits string) string {
	return "  - {name: " + name + ", type: component, properties: {image: i}, traits: [{type: spreadscaler, properties: {instances: 1}}" + traits + "]}\n"
}

func provider(name, properties string) string {
	return "  - {name: " + name + ", type: capability, properties: {" + properties + "}}\n"
}

func TestFindings(t *testing.T) {
	for _, want := range []struct {
		name, src string
		findings  []string
	}{
		{"nothing", spec("") + "", nil},
		{"a name with a dot", strings.Replace(spec(component("c", "")), "name: app", "name: my.app", 1), []string{
			`error [name] line 3, column 12: metadata.name: the name "my.app" is not allowed; write letters from A to Z, digits, dashes and underscores only`,
		}},
		{"an empty name", strings.Replace(spec(component("c", "")), "name: app", "name: ''", 1), []string{
			`error [name] line 3, column 12: metadata.name: the name is empty; write letters, digits, dashes and underscores`,
		}},
		{"version latest", strings.Replace(spec(component("c", "")), "name: app", "name: app, annotations: {version: latest}", 1), []string{
			`error [version-latest] line 3, column 37: metadata.annotations["version"]: the version latest is not allowed; it stands for the newest one`,
		}},
		{"a version with a control character", strings.Replace(spec(component("c", "")), "name: app", `name: app, annotations: {version: "v\t1"}`, 1), []string{
			`error [version] line 3, column 37: metadata.annotations["version"]: the version "v\t1" has a control character`,
		}},
		{"keys", strings.Replace(spec(component("c", "")), "name: app", "name: app, annotations: {b..: x, a/b/c: x, ok: x}, labels: {my_prefix/name: x}", 1), []string{
			`error [label-key] line 3, column 72: metadata.labels["my_prefix/name"]: the key "my_prefix/name" is not allowed; write at most 63 letters, digits, dashes, underscores and dots that begin and end with a letter or digit, after a DNS name and a slash if you like`,
			`error [annotation-key] line 3, column 45: metadata.annotations["a/b/c"]: the key "a/b/c" is not allowed; write at most 63 letters, digits, dashes, underscores and dots that begin and end with a letter or digit, after a DNS name and a slash if you like`,
			`error [annotation-key] line 3, column 37: metadata.annotations["b.."]: the key "b.." is not allowed; write at most 63 letters, digits, dashes, underscores and dots that begin and end with a letter or digit, after a DNS name and a slash if you like`,
		}},
		{"names and ids that repeat", spec("  - {name: ui, type: component, properties: {image: i, id: one}, " + scaled + "}\n" +
			"  - {name: ui, type: capability, properties: {image: i, id: one}}\n  - {name: ui, type: capability, properties: {image: i, id: two}}\n"), []string{
			`error [duplicate-component] line 7, column 6: spec.components[1].name: Duplicate component name in manifest: ui`,
			`error [duplicate-id] line 7, column 57: spec.components[1].properties.id: Duplicate component identifier in manifest: one`,
			`error [duplicate-component] line 8, column 6: spec.components[2].name: Duplicate component name in manifest: ui`,
		}},
		{"targets that are missing", spec(component("c", ", {type: link, properties: {namespace: a, package: b, interfaces: [c], target: zz}}"+
			", {type: linkdef, properties: {namespace: a, package: b, interfaces: [c], target: yy}}, {type: link, properties: {namespace: a, package: c, interfaces: [d], target: zz}}")), []string{
			`error [link-target] line 6, column 184: spec.components[0].traits[1].properties.target.name: The following capability component(s) are missing from the manifest: ["yy", "zz"]`,
			`warning [dangling-link] line 6, column 184: spec.components[0].traits[1].properties.target.name: the link's target "zz" is no component of the manifest`,
			`warning [dangling-link] line 6, column 353: spec.components[0].traits[3].properties.target.name: the link's target "zz" is no component of the manifest`,
			`warning [trait-ignored] line 6, column 198: spec.components[0].traits[2]: traits of type "linkdef" have no effect; the types are link, spreadscaler and daemonscaler`,
		}},
		{"a link without a target", spec(component("c", ", {type: link, properties: {namespace: a, package: b, interfaces: [c]}}")), []string{
			`error [link-target] line 6, column 128: spec.components[0].traits[1].properties.target.name: The following capability component(s) are missing from the manifest: [""]`,
			`warning [dangling-link] line 6, column 128: spec.components[0].traits[1].properties.target.name: the link's target "" is no component of the manifest`,
		}},
		{"interfaces", spec(component("c", ", {type: link, properties: {namespace: wasi, package: keyvalue, interfaces: [store, atomic], target: k}}"+
			", {type: link, properties: {namespace: wasi, package: keyvalues, interfaces: [store, batch], target: k}}"+
			", {type: link, properties: {namespace: own, package: keyvalue, interfaces: [atomic], target: k}}"+
			", {type: link, properties: {namespace: wrpc, package: keyvalue, interfaces: [watch], target: k}}"+
			", {type: link, properties: {namespace: wasmcloud, package: messaging, interfaces: [consumer, handler, producer], target: k}}") + provider("k", "image: i")), []string{
			`warning [unknown-interface] line 6, column 197: spec.components[0].traits[1].properties.interfaces[1]: wasi:keyvalue/atomic is not known: the interfaces of wasi:keyvalue are atomics, batch, store, watch`,
			`warning [unknown-interface] line 6, column 295: spec.components[0].traits[2].properties.interfaces[0]: wasi:keyvalues/store is not known: the packages of wasi are blobstore, config, http, keyvalue, logging`,
			`warning [unknown-interface] line 6, column 302: spec.components[0].traits[2].properties.interfaces[1]: wasi:keyvalues/batch is not known: the packages of wasi are blobstore, config, http, keyvalue, logging`,
			`warning [unknown-interface] line 6, column 494: spec.components[0].traits[4].properties.interfaces[0]: wrpc:keyvalue/watch is not known: the interfaces of wrpc:keyvalue are atomics, store`,
			`warning [unknown-interface] line 6, column 615: spec.components[0].traits[5].properties.interfaces[2]: wasmcloud:messaging/producer is not known: the interfaces of wasmcloud:messaging are consumer, handler`,
		}},
		{"what is meant as a link", spec(component("c", ", {type: link, properties: {a: b}}, {type: link, properties: {target: c}}, {type: link, properties: {target: {name: 5}}}"+
			", {type: link, properties: {target: {name: zz}}}, {type: link, properties: text}")), []string{
			`error [link-without-target] line 6, column 128: spec.components[0].traits[1].properties: the link has no target; name a component under target.name`,
			`error [link-without-target] line 6, column 175: spec.components[0].traits[2].properties.target: the link's target has no name; name a component under target.name`,
			`error [link-without-target] line 6, column 214: spec.components[0].traits[3].properties.target: the link's target has no name; name a component under target.name`,
			`warning [dangling-link] line 6, column 270: spec.components[0].traits[4].properties.target.name: the link's target "zz" is no component of the manifest`,
			`error [link-without-target] line 6, column 296: spec.components[0].traits[5].properties: the link has no target; name a component under target.name`,
			`error [link-properties] line 6, column 128: spec.components[0].traits[1].properties: the properties are not those of a link: the key namespace of a link is missing`,
			`error [link-properties] line 6, column 162: spec.components[0].traits[2].properties: the properties are not those of a link: the key namespace of a link is missing`,
			`error [link-properties] line 6, column 223: spec.components[0].traits[3].properties.target.name: the properties are not those of a link: 5 is a number; a string is wanted; write it in quotes`,
			`error [link-properties] line 6, column 248: spec.components[0].traits[4].properties: the properties are not those of a link: the key namespace of a link is missing`,
			`error [link-properties] line 6, column 296: spec.components[0].traits[5].properties: the properties are not those of a link: "text" is a string; a mapping is wanted; the keys are name, namespace, package, interfaces, source, target, source_config, target_config`,
		}},
		{"a number in a link's config", spec(component("c", ", {type: link, properties: {namespace: a, package: b, interfaces: [c], target: {name: c, config: [{name: n, properties: {port: 8080}}]}}}")), []string{
			`error [link-properties] line 6, column 234: spec.components[0].traits[1].properties.target.config[0].properties["port"]: the properties are not those of a link: 8080 is a number; a string is wanted; write it in quotes`,
		}},
		{"a link shaped like a scaler, which ends wadm", spec(component("c", ", {type: link, properties: {instances: 1}}")), []string{
			`error [link-properties] line 6, column 128: spec.components[0].traits[1].properties: the properties of the link are those of a scaler; the keys are name, namespace, package, interfaces, source, target, source_config, target_config`,
		}},
		{"a scaler shaped like a link", spec("  - {name: c, type: component, properties: {image: i}, traits: [{type: daemonscaler, properties: {namespace: a, package: b, interfaces: [c], target: c}}]}\n"), []string{
			`warning [trait-ignored] line 6, column 86: spec.components[0].traits[0].properties: the properties of the daemonscaler are those of a link; it is neither one nor the other and has no effect`,
		}},
		{"what is meant as a scaler", spec("  - {name: a, type: component, properties: {image: i}, traits: [{type: spreadscaler, properties: {instance: 1}}]}\n" +
			"  - {name: b, type: component, properties: {image: i}, traits: [{type: daemonscaler, properties: {instances: -1}}]}\n" +
			"  - {name: c, type: component, properties: {image: i}, traits: [{type: spreadscaler, properties: {instances: 1, replicas: 1}}]}\n" +
			"  - {name: d, type: component, properties: {image: i}, traits: [{type: spreadscaler, properties: {instances: 1, spread: [{name: x, weight: 1.5}]}}]}\n" +
			"  - {name: e, type: component, properties: {image: i}, traits: [{type: spreadscaler, properties: {instances: '1'}}]}\n" +
			"  - {name: f, type: component, properties: {image: i}, traits: [{type: spreadscaler, properties: ~}]}\n" +
			"  - {name: g, type: component, properties: {image: i}, traits: [{type: spreadscaler, properties: {replicas: 1.0}}]}\n"), []string{
			`error [scaler-properties] line 6, column 86: spec.components[0].traits[0].properties: the properties are not those of a spreadscaler: "instance" is no key of a scaler; the keys are instances, spread, replicas`,
			`error [scaler-properties] line 7, column 99: spec.components[1].traits[0].properties.instances: the properties are not those of a daemonscaler: -1 is no whole number from 0 on`,
			`error [scaler-properties] line 8, column 113: spec.components[2].traits[0].properties.replicas: the properties are not those of a spreadscaler: replicas is an old name of instances; keep one of them`,
			`error [scaler-properties] line 9, column 132: spec.components[3].traits[0].properties.spread[0].weight: the properties are not those of a spreadscaler: 1.5 is no whole number from 0 on`,
			`error [scaler-properties] line 10, column 99: spec.components[4].traits[0].properties.instances: the properties are not those of a spreadscaler: "1" is a string; a whole number is wanted`,
			`error [scaler-properties] line 11, column 86: spec.components[5].traits[0].properties: the properties are not those of a spreadscaler: null stands here; a mapping is wanted; the keys are instances, spread, replicas`,
			`error [scaler-properties] line 12, column 99: spec.components[6].traits[0].properties.replicas: the properties are not those of a spreadscaler: 1.0 is no whole number from 0 on`,
		}},
		{"a scaler whose kept form would be fine", spec("  - {name: a, type: component, properties: {image: i}, traits: [{type: spreadscaler, properties: {instances: 1, instances: 2}}]}\n" +
			"  - {name: b, type: component, properties: {image: i}, traits: [{type: spreadscaler, properties: {instances: 1, spread: .inf}}]}\n"), []string{
			`error [scaler-properties] line 6, column 86: spec.components[0].traits[0].properties: the properties are not those of a spreadscaler: the key "instances" is there twice; keep one of them`,
			`error [scaler-properties] line 7, column 113: spec.components[1].traits[0].properties.spread: the properties are not those of a spreadscaler: .inf is a number; a list is wanted`,
		}},
		{"secrets", spec(provider("k", "image: i, secrets: [{name: a, properties: {policy: vault, key: k}}, {name: b, properties: {policy: bare, key: k}}, {name: c, properties: {policy: other, key: k}}, {name: d, properties: {policy: none, key: k}}]")+
			component("c", ", {type: link, properties: {namespace: a, package: b, interfaces: [c], source: {secrets: [{name: e, properties: {policy: none, key: k}}]}, target: {name: k, secrets: [{name: f, properties: {policy: none, key: k}}]}}}")) + policies, []string{
			`error [policy-backend] line 6, column 137: spec.components[0].properties.secrets[1].properties.policy: secret "b" names the policy "bare", which has no backend among its properties`,
			`error [policy-type] line 6, column 184: spec.components[0].properties.secrets[2].properties.policy: secret "c" names the policy "other", which has the type "policy.example.com/v1"; policy.secret.wasmcloud.dev/v1alpha1 is wanted`,
			`error [unknown-policy] line 6, column 232: spec.components[0].properties.secrets[3].properties.policy: secret "d" names the policy "none", which is not in spec.policies`,
			`error [unknown-policy] line 7, column 303: spec.components[1].traits[1].properties.target.secrets[0].properties.policy: secret "f" names the policy "none", which is not in spec.policies`,
			`error [unknown-policy] line 7, column 226: spec.components[1].traits[1].properties.source.secrets[0].properties.policy: secret "e" names the policy "none", which is not in spec.policies`,
		}},
		{"images and applications", spec(provider("a", "")+provider("b", "image: ''")+provider("c", "image: i, application: {name: x, component: y}")+
			provider("d", "application: {name: x, component: y}, config: [{name: n}], secrets: [{name: s, properties: {policy: vault, key: k}}]")+
			provider("e", "application: {name: x, component: y}, secrets: [{name: s, properties: {policy: vault, key: k}}]")+
			"  - {name: f, type: component, properties: {application: {name: x, component: y}}, traits: [{type: spreadscaler, properties: {instances: 1}}]}\n"+
			provider("g", "image: '', application: {name: x, component: y}")) + policies, []string{
			`error [image-or-application] line 6, column 33: spec.components[0].properties: component "a" has neither an image nor an application; give one of them`,
			`error [image-or-application] line 7, column 33: spec.components[1].properties: component "b" has neither an image nor an application; give one of them`,
			`error [image-or-application] line 8, column 33: spec.components[2].properties: component "c" has both an image and an application; keep one of them`,
			`error [reference-config] line 9, column 84: spec.components[3].properties.config: component "d" belongs to the application "x" and cannot be given config here`,
			`error [reference-secrets] line 10, column 84: spec.components[4].properties.secrets: component "e" belongs to the application "x" and cannot be given secrets here`,
			`error [reference-scaler] line 11, column 114: spec.components[5].traits[0].properties: component "f" belongs to the application "x" and cannot be scaled here`,
		}},
		{"links that repeat", spec(component("c", ", {type: link, properties: {namespace: a, package: b, interfaces: [c, d, c], target: k}}"+
			", {type: link, properties: {namespace: a, package: b, interfaces: [d], target: c, name: default}}"+
			", {type: link, properties: {namespace: a, package: b, interfaces: [d], target: k, name: other}}"+
			", {type: linkdef, properties: {namespace: a, package: b, interfaces: [d], target: k}}") + provider("k", "image: i")), []string{
			`error [duplicate-link] line 6, column 186: spec.components[0].traits[1].properties.interfaces[2]: Duplicate link found inside component "c": a:b/c is linked under the name "default" already; give the links names of their own`,
			`error [duplicate-link] line 6, column 268: spec.components[0].traits[2].properties.interfaces[0]: Duplicate link found inside component "c": a:b/d is linked under the name "default" already; give the links names of their own`,
			`warning [trait-ignored] line 6, column 395: spec.components[0].traits[4]: traits of type "linkdef" have no effect; the types are link, spreadscaler and daemonscaler`,
		}},
		{"old link configs", spec(component("c", ", {type: link, properties: {namespace: a, package: b, interfaces: [c], target: k, target_config: [{name: x, properties: {}}], source_config: []}}"+
			", {type: linkdef, properties: {namespace: a, package: b, interfaces: [d], target: k, target_config: [{name: x, properties: {}}]}}"+
			", {type: link, properties: {namespace: a, package: d, interfaces: [c], target: k, source_config: [{name: x, properties: {}}]}}") + provider("k", "image: i")), []string{
			`error [duplicate-link-config] line 6, column 486: spec.components[0].traits[3].properties.source.config[0].name: the name "x" is that of another config of a link; give properties in one place and only the name in others`,
			`warning [deprecated-link-config] line 6, column 239: spec.components[0].traits[1].properties.source_config: source_config is an old name; write source with config under it`,
			`warning [deprecated-link-config] line 6, column 195: spec.components[0].traits[1].properties.target_config: target_config is an old name; write target with config under it`,
			`warning [deprecated-link-config] line 6, column 469: spec.components[0].traits[3].properties.source_config: source_config is an old name; write source with config under it`,
			`warning [trait-ignored] line 6, column 260: spec.components[0].traits[2]: traits of type "linkdef" have no effect; the types are link, spreadscaler and daemonscaler`,
		}},
		{"ids", spec(provider("a-b", "image: i") + provider("a_b", "image: i") + provider("x", "image: i, id: app-a_b") + provider("y", "image: i, id: a.b") +
			provider("z", "application: {name: x, component: y}, id: z") + provider("A.b", "application: {name: x, component: y}")), []string{
			`error [id-collision] line 7, column 5: spec.components[1]: components "a-b" and "a_b" would both run under the id "app-a_b"; give one of them an id of its own`,
			`error [id-collision] line 8, column 5: spec.components[2]: components "a-b" and "x" would both run under the id "app-a_b"; give one of them an id of its own`,
			`error [id-token] line 9, column 56: spec.components[3].properties.id: the id "a.b" cannot be part of a NATS subject; leave out spaces, dots, asterisks and greater-than signs`,
			`warning [reference-id] line 10, column 84: spec.components[4].properties.id: the id has no effect; the id of component "z" is that in the application "x"`,
		}},
		{"scalers", spec("  - {name: a, type: component, properties: {image: i}}\n" +
			"  - {name: b, type: component, properties: {image: i}, traits: [{type: spreadscaler, properties: {instances: 1}}, {type: daemonscaler, properties: {instances: 1}}, {type: spreadscaler, properties: {instances: 1}}]}\n" +
			"  - {name: c, type: component, properties: {image: i}, traits: [{type: spreadscaler, properties: {instances: 1000001}}]}\n" +
			"  - {name: d, type: component, properties: {image: i}, traits: [{type: spreadscaler, properties: {instances: 1000000, spread: [{name: x, weight: 0}, {name: x, weight: 0}]}}]}\n" +
			"  - {name: e, type: component, properties: {image: i}, traits: [{type: daemonscaler, properties: {instances: 0, spread: [{name: x, weight: 0}, {name: y}]}}]}\n" +
			"  - {name: f, type: component, properties: {image: i}, traits: [{type: mine, properties: {instances: 2000000, spread: [{name: x, weight: 0}]}}]}\n"), []string{
			`warning [no-scaler] line 6, column 5: spec.components[0]: component "a" has no scaler and will never be started; add a trait of type spreadscaler`,
			`warning [several-scalers] line 7, column 136: spec.components[1].traits[1].properties: component "b" has several scalers, which act on the same instances; keep one of them`,
			`error [instances] line 8, column 99: spec.components[2].traits[0].properties.instances: 1000001 instances are too many; at most 1000000 are possible`,
			`error [weights] line 9, column 119: spec.components[3].traits[0].properties.spread: all weights are 0, so that no share can be computed; give one of them at least 1`,
			`warning [duplicate-spread] line 9, column 151: spec.components[3].traits[0].properties.spread[1].name: the name "x" is that of another spread here; instances could not be told apart`,
			`warning [no-scaler] line 11, column 5: spec.components[5]: component "f" has no scaler and will never be started; add a trait of type spreadscaler`,
			`warning [trait-ignored] line 11, column 65: spec.components[5].traits[0]: traits of type "mine" have no effect; the types are link, spreadscaler and daemonscaler`,
		}},
		{"the header", "apiVersion: v1\nkind: Deployment\nmetadata: {name: app, annotations: {experimental.wasmcloud.dev/shared: yes}}\nspec: {components: []}\n", []string{
			`warning [api-version] line 1, column 1: apiVersion: the apiVersion "v1" is not known and read as core.oam.dev/v1beta1`,
			`warning [kind] line 2, column 1: kind: the kind "Deployment" is not known and read as Application`,
			`warning [shared] line 3, column 37: metadata.annotations["experimental.wasmcloud.dev/shared"]: "yes" does not share the application; only "true" does`,
		}},
		{"the Go client's header", "apiVersion: core.oam.dev/v1beta1\nkind: Manifest\nmetadata: {name: app, annotations: {experimental.wasmcloud.dev/shared: true}}\nspec: {components: []}\n", nil},
		{"policies", "apiVersion: core.oam.dev/v1beta1\nkind: Application\nmetadata: {name: app}\nspec:\n  components: []\n  policies: [{name: a, type: b, properties: {}}, {name: a, type: b, properties: {}}]\n", []string{
			`warning [duplicate-policy] line 6, column 51: spec.policies[1].name: the name "a" is that of another policy; the last one counts`,
		}},
		{"images", spec(provider("a", "image: 'registry.example.com/UPPER/case:1'") + provider("b", "image: 'file:///tmp/x y.wasm'") + provider("c", "image: 'a b'") + provider("d", "image: 'localhost:5000/x@sha256:"+strings.Repeat("0a", 32)+"'")), []string{
			`warning [image-reference] line 6, column 46: spec.components[0].properties.image: the image "registry.example.com/UPPER/case:1" is neither an OCI reference nor a file:// address: invalid reference format: repository name (UPPER/case) must be lowercase`,
			`warning [image-reference] line 8, column 46: spec.components[2].properties.image: the image "a b" is neither an OCI reference nor a file:// address: invalid reference format`,
		}},
		{"links without effect", spec(component("c", ", {type: link, properties: {namespace: a, package: b, interfaces: [], target: k}}"+
			", {type: link, properties: {namespace: a, package: b, interfaces: [c], target: k}}"+
			", {type: link, properties: {namespace: a, package: b, interfaces: [c], target: c, name: own}}") +
			"  - {name: k, type: capability, properties: {image: i}, traits: [{type: link, properties: {namespace: a, package: b, interfaces: [d], target: k}}]}\n"), []string{
			`warning [no-interfaces] line 6, column 167: spec.components[0].traits[1].properties.interfaces: the link has no interfaces and connects nothing`,
			`warning [link-overwritten] line 6, column 209: spec.components[0].traits[2].properties: the host keeps only the last of several links named "default" from "c" to "k" for a:b; list all interfaces in one link`,
			`warning [provider-link] line 7, column 135: spec.components[1].traits[0].properties.target.name: the link is ignored: "k" and "k" are both capabilities, and one end must be a component`,
		}},
		{"conflicts", spec(provider("a", "image: i, config: [{name: x-y, properties: {a: b}}, {name: z, properties: {a: b}}, {name: ext}], secrets: [{name: s, properties: {policy: vault, key: k}}]")+
			provider("b", "image: i, config: [{name: x.y, properties: {a: c}}, {name: z, properties: {a: b}}, {name: ext}], secrets: [{name: s, properties: {policy: vault, key: other}}]")) + policies, []string{
			`warning [config-conflict] line 7, column 66: spec.components[1].properties.config[0].name: config "x.y" and config "x-y" before it have different properties, but both are kept as "app-x_y"; name one of them differently`,
			`warning [secret-conflict] line 7, column 154: spec.components[1].properties.secrets[0].name: secret "s" and secret "s" before it have different properties, but both are kept as "SECRET_app-s"; name one of them differently`,
		}},
	} {
		t.Run(want.name, func(t *testing.T) {
			require.Equal(t, want.findings, lines(t, want.src))
		})
	}
}

// TestPositionsPointAtKeys compares positions with the text: at each stands the
// last key of the path that is written there.
func TestPositionsPointAtKeys(t *testing.T) {
	src := spec("  - name: ü\n    type: component\n    properties: {id: 'a b'}\n    traits:\n    - type: link\n      properties:\n"+
		"        namespace: wasi\n        package: http\n        interfaces:\n        - one\n        - two\n        target: zz\n"+
		"        source_config:\n        - name: x\n          properties: {}\n        - name: x\n          properties: {a: b}\n"+
		"    - type: spreadscaler\n      properties:\n        replicas: 2000000\n") + "  labels: {}\n"
	text := strings.Split(src, "\n")
	for path, want := range map[string]string{
		"spec.components[0].properties.id":                              "id: 'a b'}",
		"spec.components[0].properties":                                 "properties: {id: 'a b'}",
		"spec.components[0].traits[0].properties.interfaces[1]":         "two",
		"spec.components[0].traits[0].properties.target.name":           "target: zz",
		"spec.components[0].traits[0].properties.source.config[1].name": "name: x",
		"spec.components[0].traits[0].properties.source_config":         "source_config:",
		"spec.components[0].traits[1].properties.instances":             "replicas: 2000000",
		"spec": "labels: {}",
	} {
		found := false
		for _, f := range parse(t, src, oam.YAML).Validate() {
			if f.Path == path {
				require.Equal(t, want, string([]rune(text[f.Line-1])[f.Column-1:]), path)
				found = true
			}
		}
		require.True(t, found, path)
	}
}

func TestPoliciesThatNothingUsesAreNotInspected(t *testing.T) {
	require.Empty(t, lines(t, spec(component("c", ""))+policies))
}

// TestFragments holds the words that clients' tests look for.
func TestFragments(t *testing.T) {
	findings := strings.Join(append(append(append(
		lines(t, spec(component("ui", "")+component("ui", ""))),
		lines(t, spec(provider("a", "image: i, id: x")+provider("b", "image: i, id: x")))...),
		lines(t, spec(component("a", ", {type: linkdef, properties: {namespace: a, package: b, interfaces: [c], target: d}}")))...),
		lines(t, spec(component("a", ", {type: link, properties: {namespace: a, package: b, interfaces: [atomics, atomics], target: a}}")))...), "\n")
	for _, fragment := range []string{
		"Duplicate component name in manifest: ui",
		"Duplicate component identifier in manifest",
		"The following capability component(s) are missing from the manifest: ",
		"Duplicate link found inside component",
		"atomics",
	} {
		require.Contains(t, findings, fragment)
	}
}

func TestFirstError(t *testing.T) {
	findings := parse(t, spec("  - {name: a, type: component, properties: {image: ''}}\n"), oam.YAML).Validate()
	first, bad := oam.FirstError(findings)
	require.True(t, bad)
	require.Equal(t, oam.Finding{
		Level: "error", Rule: "image-or-application", Path: "spec.components[0].properties", Line: 6, Column: 32,
		Message: `component "a" has neither an image nor an application; give one of them`,
	}, first)
	text, err := json.Marshal(first)
	require.NoError(t, err)
	require.JSONEq(t, `{"level":"error","rule":"image-or-application","path":"spec.components[0].properties","line":6,"column":32,`+
		`"message":"component \"a\" has neither an image nor an application; give one of them"}`, string(text))

	_, bad = oam.FirstError(parse(t, spec("  - {name: a, type: component, properties: {image: i}}\n"), oam.YAML).Validate())
	require.False(t, bad)
	_, bad = oam.FirstError(nil)
	require.False(t, bad)
}

// TestAManifestOfOnesOwn validates what was never a text: there are no lines.
func TestAManifestOfOnesOwn(t *testing.T) {
	document := oam.Document{Manifest: oam.Manifest{Spec: oam.Specification{Components: []oam.Component{{
		Name: "c", Type: oam.TypeComponent, Traits: []oam.Trait{{Type: "link"}, {Type: "spreadscaler"}, {Type: "link", Custom: json.RawMessage("{")}},
	}}}}}
	var findings []string
	for _, f := range document.Validate() {
		require.Zero(t, f.Line)
		findings = append(findings, f.String())
	}
	require.Equal(t, []string{
		`error [name] metadata.name: the name is empty; write letters, digits, dashes and underscores`,
		`error [link-properties] spec.components[0].traits[0].properties: the properties are not those of a link: there are none`,
		`error [scaler-properties] spec.components[0].traits[1].properties: the properties are not those of a spreadscaler: there are none`,
		`error [link-properties] spec.components[0].traits[2].properties: the properties are not those of a link: there are none`,
		`error [image-or-application] spec.components[0].properties: component "c" has neither an image nor an application; give one of them`,
		`warning [api-version] apiVersion: the apiVersion "" is not known and read as core.oam.dev/v1beta1`,
		`warning [kind] kind: the kind "" is not known and read as Application`,
	}, findings)
}

// TestFindingsAreBounded keeps the error that counts among ever so many warnings.
func TestFindingsAreBounded(t *testing.T) {
	var labels, components strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&labels, "    bad..%d..: x\n", i)
		fmt.Fprintf(&components, "  - {name: c%d, type: component, properties: {image: i}, ignored: 1}\n", i)
	}
	findings := parse(t, "apiVersion: core.oam.dev/v1beta1\nkind: Application\nmetadata:\n  name: app\n  labels:\n"+labels.String()+"spec:\n  components:\n"+components.String(), oam.YAML).Validate()
	require.Len(t, findings, 2001)
	require.Equal(t, oam.Finding{Level: oam.Warning, Rule: "more-findings", Message: "58000 more findings are left out"}, findings[2000])
	first, _ := oam.FirstError(findings)
	require.Equal(t, 6, first.Line)

	findings = parse(t, spec(components.String()+"  - {name: c1, type: component, properties: {image: i}}\n  - {name: last, type: component, properties: {image: i, application: {name: a, component: b}}}\n"), oam.YAML).Validate()
	first, _ = oam.FirstError(findings)
	require.Equal(t, "duplicate-component", first.Rule)
	require.Equal(t, 20_006, first.Line)
}
