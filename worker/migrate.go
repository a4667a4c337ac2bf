package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"tidewait/migrations"
)

func migrateCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "migrate",
		Short:   "Bring the database's schema up to date",
		Example: "  tidewait-worker migrate --postgres.url postgres://127.0.0.1/tidewait",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, _, err := settings(cmd)
			if err != nil {
				return err
			}
			applied, err := migrations.Apply(cmd.Context(), s.Postgres.URL)
			if errors.Is(err, migrations.ErrSchema) {
				return err
			}
			if err != nil {
				return fmt.Errorf("%w; is Postgres there, and does postgres.url name it?", err)
			}
			for _, a := range applied {
				fmt.Fprintf(cmd.OutOrStdout(), "applied %s\n", a.File)
			}
			if len(applied) == 0 {
				fmt.Fprintln(cmd.OutOrStdout(), "the schema is up to date")
			}
			return nil
		},
	}
}
