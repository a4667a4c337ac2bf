package scaler_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/oam"
	"tidewait/internal/scaler"
	"tidewait/internal/wadm"
)

// A document with something of everything that decides about scalers: names that
// need cleaning, an explicit id, old spellings, two scalers of one component,
// links that are none.
const everything = `
apiVersion: core.oam.dev/v1beta1
kind: Application
metadata:
  name: Shop-Front_9
  annotations: {version: v7, description: "x"}
spec:
  policies:
    - {name: vault, type: policy.secret.wasmcloud.dev/v1alpha1, properties: {backend: b, x: "1"}}
  components:
    - name: API.web
      type: actor
      properties:
        image: registry.example.com/a:1
        config: [{name: My Conf, properties: {}}, {name: external}]
        secrets: [{name: s-1, properties: {policy: vault, key: k, field: f, version: "3"}}]
      traits:
        - {type: daemonscaler, properties: {replicas: 2, spread: [{name: q, requirements: {a: b}, weight: 3}]}}
        - {type: spreadscaler, properties: {instances: 0}}
        - {type: link, properties: {namespace: wasi, package: http, interfaces: [a, b], target: db, target_config: [{name: tc, properties: {a: b}}], source_config: [{name: sc}]}}
        - {type: linkdef, properties: {namespace: wasi, package: http2, interfaces: [a, b], target: db}}
        - {type: link, properties: {name: other, namespace: wasi, package: http, interfaces: [a], source: {config: [{name: sc2}], secrets: [{name: s-2, properties: {policy: vault, key: k}}]}, target: {name: db, config: [{name: x}], secrets: [{name: s-3, properties: {policy: vault, key: k}}]}}}
    - name: db
      type: capability
      properties: {image: registry.example.com/db:1, id: my_db, config: [{name: dbc, properties: {a: b}}]}
      traits:
        - {type: link, properties: {namespace: wasi, package: p, interfaces: [a], target: {name: API.web}}}
        - {type: link, properties: {namespace: wasi, package: p2, interfaces: [a], target: {name: web2}}}
    - name: web2
      type: capability
      properties: {image: registry.example.com/db:1}
      traits:
        - {type: daemonscaler, properties: {instances: 1}}
`

// The rows are what the status of a server of wadm 0.21.1 showed for the
// document, in this order.
func TestRowsAreThoseOfARealServer(t *testing.T) {
	doc, err := oam.Parse([]byte(everything), oam.YAML)
	require.NoError(t, err)
	require.Equal(t, []wadm.ScalerStatus{
		{ID: "e096bd120394facd98a70b004ee842f0bbd897a9bf5939f3929ad86f509cd5d0", Kind: "DaemonScaler", Name: "shop_front_9-api_web"},
		{ID: "7e5a95384ce47d364e62d46684ff87774833db6a951a43150afdde59bd874e2f", Kind: "SpreadScaler", Name: "shop_front_9-api_web"},
		{ID: "b7fa70704dd65008a711023b4166983c2d74b2b9986be7c5fff6efb177441287", Kind: "LinkScaler", Name: "shop_front_9-api_web -(wasi:http)-> my_db"},
		{ID: "03df3273f363cf69481009d8b9fd39ed1abaa2c1e70f62f415f9c3c13f31d361", Kind: "LinkScaler", Name: "shop_front_9-api_web -(wasi:http)-> my_db"},
		{ID: "af544f242837e6606d5d04695070ca321ac15ed3d1693fe2ad15ee85d6d4863f", Kind: "LinkScaler", Name: "my_db -(wasi:p)-> shop_front_9-api_web"},
		{ID: "940d7bcb84e7d5e827e63cebe900cfd1921c522dfb79d37553a00f56c74f502e", Kind: "SpreadScaler", Name: "my_db"},
		{ID: "76181156fb004143206cefadf3012b5baa2164b49898657361c67c98d3b94a17", Kind: "DaemonScaler", Name: "shop_front_9-web2"},
	}, scaler.Rows(doc.Manifest))
}
