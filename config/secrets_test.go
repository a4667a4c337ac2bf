package config_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewait/config"
	"tidewait/internal/secret/source"
)

func TestSecretsOfAGateway(t *testing.T) {
	dir := inEmptyDir(t)
	require.Equal(t, source.Sources{Env: []string{}, Commands: map[string][]string{}, Time: 10 * time.Second}, load(t, config.Options{}).Gateway.Secrets())

	s := load(t, config.Options{File: write(t, filepath.Join(dir, "a.yaml"), `
gateway:
  secret_dir: /etc/tidewait/secrets
  secret_env: [NPM_TOKEN, _x1]
  secret_commands: {ci.Token: "/usr/bin/vault read  -field=token secret/ci", b: /bin/b}
  secret_command_timeout: 25s
`)})
	require.Equal(t, source.Sources{
		Dir: "/etc/tidewait/secrets", Env: []string{"NPM_TOKEN", "_x1"}, Time: 25 * time.Second,
		Commands: map[string][]string{"ci.Token": {"/usr/bin/vault", "read", "-field=token", "secret/ci"}, "b": {"/bin/b"}},
	}, s.Gateway.Secrets())
}
