package config

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"tidewait/internal/mission"
	"tidewait/internal/secret/source"
)

// longestSecretCommand leaves a gateway time to seal what a command has printed.
const longestSecretCommand = 25 * time.Second

// Secrets returns the secrets that the gateway gives away.
func (g Gateway) Secrets() source.Sources {
	s := source.Sources{Dir: g.SecretDir, Env: g.SecretEnv, Time: g.SecretCommandTimeout, Commands: map[string][]string{}}
	for name, command := range g.SecretCommands {
		s.Commands[name] = strings.Fields(command)
	}
	return s
}

var variablePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (c *checker) secrets() {
	g := c.settings.Gateway
	c.want(g.SecretDir == "" || filepath.IsAbs(g.SecretDir), "an absolute path", "gateway.secret_dir")
	odd := slices.ContainsFunc(g.SecretEnv, func(name string) bool { return !variablePattern.MatchString(name) })
	c.want(!odd, "names of environment variables, such as [NPM_TOKEN]", "gateway.secret_env")
	for name, command := range g.SecretCommands {
		_, named := mission.ParseSource("command:" + name)
		argv := strings.Fields(command)
		c.want(named && len(argv) > 0 && filepath.IsAbs(argv[0]),
			"pairs of a name and a program with its arguments, such as {ci: /usr/bin/vault read -field=token secret/ci}", "gateway.secret_commands")
	}
	c.want(g.SecretCommandTimeout > 0 && g.SecretCommandTimeout <= longestSecretCommand, "more than 0s and at most "+short(longestSecretCommand), "gateway.secret_command_timeout")
}
