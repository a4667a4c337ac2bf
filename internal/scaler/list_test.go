package scaler_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tidewait/internal/oam"
	"tidewait/internal/scaler"
	"tidewait/internal/wadm"
)

const (
	apiImage = "registry.example.com/shop/api:1.4.0"
	webImage = "registry.example.com/providers/http:0.27.0"
)

func component(name string, traits ...oam.Trait) oam.Component {
	return oam.Component{
		Name: name, Type: oam.TypeComponent,
		Properties: oam.Properties{Image: apiImage}, Traits: traits,
	}
}

func provider(name string, traits ...oam.Trait) oam.Component {
	return oam.Component{
		Name: name, Type: oam.TypeCapability,
		Properties: oam.Properties{Image: webImage}, Traits: traits,
	}
}

func spread(instances int, targets ...oam.SpreadTarget) oam.Trait {
	return oam.Trait{Type: oam.TraitSpreadScaler, Spread: &oam.Spread{Instances: instances, Spread: targets}}
}

func daemon(instances int, targets ...oam.SpreadTarget) oam.Trait {
	return oam.Trait{Type: oam.TraitDaemonScaler, Spread: &oam.Spread{Instances: instances, Spread: targets}}
}

func linkTo(target string) oam.Trait {
	return oam.Trait{Type: oam.TraitLink, Link: &oam.Link{
		Namespace: "wasi", Package: "http", Interfaces: []string{"incoming-handler"},
		Target: oam.Target{Name: target},
	}}
}

func shop(components ...oam.Component) oam.Manifest {
	return oam.Manifest{
		APIVersion: "core.oam.dev/v1beta1", Kind: "Application",
		Metadata: oam.Metadata{Name: "shop-front"}, Spec: oam.Specification{Components: components},
	}
}

// The ids were computed apart from this code, with sha256sum.
func TestIDsAreWadms(t *testing.T) {
	withConfig := component("api", spread(3))
	withConfig.Properties.Config = []oam.Config{{Name: "api-settings", Properties: map[string]string{"currency": "EUR"}}}
	withConfig.Properties.Secrets = []oam.Secret{{Name: "db-password", Properties: oam.SecretProperties{Policy: "vault", Key: "shop/db"}}}
	listening := linkTo("api")
	listening.Link.Source = &oam.ConfigDefinition{Config: []oam.Config{{Name: "listen", Properties: map[string]string{}}}}

	for _, c := range []struct {
		about string
		from  oam.Manifest
		kind  string
		name  string
		id    string
	}{
		{
			"component spread", shop(component("api", spread(3))), "SpreadScaler", "shop_front-api",
			"19308f80d2bb1815ad7c7b14ed036e7888c250d81cf53b75a27af123293f6ec1",
		},
		{
			"component spread with configuration and secret", shop(withConfig), "SpreadScaler", "shop_front-api",
			"cd73c86b0b96a3bc61d608289535d13c64abb5b20784dc144d3a204add382494",
		},
		{
			"component daemon", shop(component("api", daemon(1))), "DaemonScaler", "shop_front-api",
			"acf8c345c24fed2a3cd59791e5f6d1aef09e3047d84720a4c7ce79adf2121f72",
		},
		{
			"provider spread", shop(provider("web")), "SpreadScaler", "shop_front-web",
			"54f1d23deab94278d82d64178ccb1f82827becc1004150a91ab977cf22d9f3cc",
		},
		{
			"link", shop(provider("web", listening), component("api")), "LinkScaler", "shop_front-web -(wasi:http)-> shop_front-api",
			"c007db4111453e85f1abeb30c2ff166ac8217c1a618a34b4f0e92b3a341230b7",
		},
	} {
		t.Run(c.about, func(t *testing.T) {
			first := scaler.List(c.from)[0]
			require.Equal(t, c.id, first.ID)
			require.Equal(t, c.kind, first.Kind)
			require.Equal(t, c.name, first.Name)
		})
	}
}

func TestIDsDoNotDependOnHowMuchAndWhere(t *testing.T) {
	first := scaler.List(shop(component("api", spread(3))))[0]
	other := scaler.List(shop(component("api", spread(9, oam.SpreadTarget{Name: "eu", Requirements: map[string]string{"zone": "eu"}}))))[0]
	require.Equal(t, first.ID, other.ID)
	require.Equal(t, 9, other.Workload.Instances)
	require.Equal(t, "eu", other.Workload.Spread[0].Name)
}

func names(list []scaler.Scaler) []string {
	var all []string
	for _, s := range list {
		all = append(all, s.Kind+" "+s.Name)
	}
	return all
}

func TestListFollowsTheManifest(t *testing.T) {
	for _, c := range []struct {
		about string
		from  oam.Manifest
		want  []string
	}{
		{"nothing", oam.Manifest{}, nil},
		{"a component without traits runs nothing", shop(component("api")), nil},
		{
			"traits in their order", shop(component("api", linkTo("api"), spread(1), daemon(1))),
			[]string{"LinkScaler shop_front-api -(wasi:http)-> shop_front-api", "SpreadScaler shop_front-api", "DaemonScaler shop_front-api"},
		},
		{
			"components in their order", shop(component("b", spread(1)), component("a", spread(1))),
			[]string{"SpreadScaler shop_front-b", "SpreadScaler shop_front-a"},
		},
		{
			"an implicit scaler of a provider behind its links", shop(provider("web", linkTo("api")), component("api", spread(1))),
			[]string{"LinkScaler shop_front-web -(wasi:http)-> shop_front-api", "SpreadScaler shop_front-web", "SpreadScaler shop_front-api"},
		},
		{
			"an explicit scaler of a provider where it stands", shop(provider("web", daemon(1), linkTo("api")), component("api")),
			[]string{"DaemonScaler shop_front-web", "LinkScaler shop_front-web -(wasi:http)-> shop_front-api"},
		},
		{
			"providers do not link to providers", shop(provider("web", linkTo("db")), provider("db", spread(2))),
			[]string{"SpreadScaler shop_front-web", "SpreadScaler shop_front-db"},
		},
		{
			"components link to providers", shop(component("api", linkTo("db")), provider("db", spread(2))),
			[]string{"LinkScaler shop_front-api -(wasi:http)-> shop_front-db", "SpreadScaler shop_front-db"},
		},
		{"a link to nothing", shop(component("api", linkTo("nowhere"))), nil},
		{
			"only the type link makes a link", shop(component("api", oam.Trait{Type: "linkdef", Link: linkTo("api").Link})), nil,
		},
		{
			"traits whose type and properties differ", shop(component("api",
				oam.Trait{Type: oam.TraitLink, Spread: &oam.Spread{Instances: 1}},
				oam.Trait{Type: oam.TraitSpreadScaler, Link: linkTo("api").Link},
				oam.Trait{Type: "other", Spread: &oam.Spread{Instances: 1}},
				oam.Trait{Type: oam.TraitSpreadScaler, Custom: []byte(`{"instance":1}`)},
				oam.Trait{},
			)), nil,
		},
		{
			"a provider whose only trait says nothing", shop(provider("web", oam.Trait{Type: oam.TraitSpreadScaler, Custom: []byte("null")})),
			[]string{"SpreadScaler shop_front-web"},
		},
	} {
		t.Run(c.about, func(t *testing.T) {
			require.Equal(t, c.want, names(scaler.List(c.from)))
		})
	}
}

func TestImplicitScalerKeepsOneInstance(t *testing.T) {
	list := scaler.List(shop(provider("web")))
	require.Len(t, list, 1)
	require.Equal(t, &scaler.Workload{Type: oam.TypeCapability, ID: "shop_front-web", Image: webImage, Instances: 1}, list[0].Workload)
	require.Equal(t, "shop-front", list[0].App)
}

func shared(name string, kind oam.ComponentType, traits ...oam.Trait) oam.Component {
	return oam.Component{
		Name: name, Type: kind, Traits: traits,
		Properties: oam.Properties{Application: &oam.SharedRef{Name: "shared-http", Component: "Server"}},
	}
}

func TestSharedComponentsContributeLinksOnly(t *testing.T) {
	link := linkTo("api")
	link.Link.Source = &oam.ConfigDefinition{Config: []oam.Config{{Name: "listen", Properties: map[string]string{"address": ":8080"}}}}
	link.Link.Target.Config = []oam.Config{{Name: "elsewhere"}}

	list := scaler.List(shop(
		shared("server", oam.TypeCapability, link, spread(4)),
		component("api", linkTo("server")),
	))

	require.Equal(t, []string{
		"LinkScaler shared_http-server -(wasi:http)-> shop_front-api",
		"LinkScaler shop_front-api -(wasi:http)-> shared_http-server",
	}, names(list))
	require.Equal(t, "shop-front", list[0].App)
	require.Equal(t, []string{"shop_front-listen"}, list[0].Link.SourceConfig, "named after the application that links")
	require.Equal(t, []string{"elsewhere"}, list[0].Link.TargetConfig)
	// printf %s LinkScalershared-httpdefaultshared_http-servershop_front-apiwasihttpincoming-handlershop_front-listenelsewhere | sha256sum
	require.Equal(t, "9ce93bf0cbb13da1ea2201c42810c2da1b6b9c4cc921b4a7ad1be6d10ad1cc22", list[0].ID)
}

func TestSharedComponentWithItsOwnID(t *testing.T) {
	server := shared("server", oam.TypeCapability, linkTo("api"))
	server.Properties.ID = "http-server"
	list := scaler.List(shop(server, component("api")))
	require.Equal(t, "http-server", list[0].Link.Source)
}

func TestNeedsAndNamesInTheOrderHostsGetThem(t *testing.T) {
	m := shop(component("api", spread(1)))
	m.Spec.Policies = []oam.Policy{
		{Name: "unused"},
		{Name: "vault", Type: oam.SecretPolicyType, Properties: map[string]string{"backend": "vault-prod", "mount": "k<v", "app": "shop"}},
	}
	m.Spec.Components[0].Properties.Secrets = []oam.Secret{
		{Name: "db-password", Properties: oam.SecretProperties{Policy: "vault", Key: "shop/db", Field: "password", Version: "3"}},
		{Name: "token", Properties: oam.SecretProperties{Policy: "vault", Key: "t"}},
		{Name: "lost", Properties: oam.SecretProperties{Policy: "none", Key: "t"}},
	}
	m.Spec.Components[0].Properties.Config = []oam.Config{
		{Name: "api-settings", Properties: map[string]string{"currency": "EUR"}},
		{Name: "Somebody's"},
		{Name: "empty", Properties: map[string]string{}},
	}

	s := scaler.List(m)[0]
	require.Equal(t, []scaler.Config{
		{Name: "shop_front-api_settings", Managed: true, Values: map[string]string{"currency": "EUR"}},
		{Name: "Somebody's"},
		{Name: "shop_front-empty", Managed: true, Values: map[string]string{}},
		{Name: "SECRET_shop_front-db_password", Managed: true, Secret: true, Values: map[string]string{
			"name": "db-password", "type": "secret.wasmcloud.dev/v1alpha1", "backend": "vault-prod",
			"key": "shop/db", "field": "password", "version": "3",
			"policy": `{"type":"properties.secret.wasmcloud.dev/v1alpha1","properties":{"app":"shop","mount":"k<v"}}`,
		}},
		{Name: "SECRET_shop_front-token", Managed: true, Secret: true, Values: map[string]string{
			"name": "token", "type": "secret.wasmcloud.dev/v1alpha1", "backend": "vault-prod", "key": "t",
			"policy": `{"type":"properties.secret.wasmcloud.dev/v1alpha1","properties":{"app":"shop","mount":"k<v"}}`,
		}},
		{Name: "SECRET_shop_front-lost", Secret: true},
	}, s.Needs)
	require.Equal(t, []string{
		"shop_front-api_settings", "Somebody's", "shop_front-empty",
		"SECRET_shop_front-db_password", "SECRET_shop_front-token", "SECRET_shop_front-lost",
	}, s.Workload.Config)
}

func TestLinkOfAnotherName(t *testing.T) {
	link := linkTo("api")
	link.Link.Name = "backup"
	link.Link.Interfaces = []string{"store", "batch"}
	list := scaler.List(shop(component("api", link)))
	require.Equal(t, &scaler.Link{
		Source: "shop_front-api", Target: "shop_front-api", Name: "backup",
		Namespace: "wasi", Package: "http", Interfaces: []string{"store", "batch"},
	}, list[0].Link)
	// printf %s LinkScalershop-frontbackupshop_front-apishop_front-apiwasihttpstorebatch | sha256sum
	require.Equal(t, "2229b1e30f0a8ce22bd3b3c09d53ceee26ceae3b80d3a4bc1ad9666cafe74351", list[0].ID)
}

func TestRowsNameTheScalersAndSayNothing(t *testing.T) {
	require.Equal(t, []wadm.ScalerStatus{
		{ID: "54f1d23deab94278d82d64178ccb1f82827becc1004150a91ab977cf22d9f3cc", Kind: "SpreadScaler", Name: "shop_front-web"},
		{ID: "19308f80d2bb1815ad7c7b14ed036e7888c250d81cf53b75a27af123293f6ec1", Kind: "SpreadScaler", Name: "shop_front-api"},
	}, scaler.Rows(shop(provider("web"), component("api", spread(3)))))
	require.Empty(t, scaler.Rows(oam.Manifest{}))
}
