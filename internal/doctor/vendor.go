package doctor

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// vendor is what is different at a managed service. The zero vendor is a server
// of one's own.
type vendor struct {
	// role exists at this service only.
	role string
	name string
	// walLevel says how logical WAL is switched on.
	walLevel string
	// replication says how a role gets the right to replicate, replicationSQL
	// is the statement, with the role's name left open.
	replication, replicationSQL string
	// readOnlyHint is another reason for which the service makes a server
	// read-only.
	readOnlyHint string
}

const alterRole = "alter role %s replication"

var vendors = []vendor{
	{
		role: "rdsadmin", name: "Amazon RDS or Aurora",
		walLevel:       "set rds.logical_replication = 1 in the parameter group and reboot the instance",
		replication:    "grant the membership; the attribute cannot be set here",
		replicationSQL: "grant rds_replication to %s",
		readOnlyHint:   "RDS does so itself when the storage is full",
	},
	{
		role: "cloudsqladmin", name: "Cloud SQL",
		walLevel:       "set the flag cloudsql.logical_decoding = on and restart the instance",
		replication:    "give it the right as a member of cloudsqlsuperuser",
		replicationSQL: alterRole,
	},
	{
		role: "alloydbadmin", name: "AlloyDB",
		walLevel:       "set the flag for logical decoding (alloydb.logical_decoding) and restart the instance",
		replication:    "give it the right as the administrator",
		replicationSQL: alterRole,
	},
	{
		role: "azuresu", name: "Azure Database for PostgreSQL",
		walLevel:       "set the server parameter wal_level = logical and restart the server",
		replication:    "give it the right as the server's administrator",
		replicationSQL: alterRole,
		readOnlyHint:   "Azure does so itself when the storage is nearly full",
	},
	{
		role: "neon_superuser", name: "Neon",
		walLevel:    "switch logical replication on in the project's settings; it cannot be undone",
		replication: "make the role in the console or by the API: roles that are made by SQL cannot get the right",
	},
	{
		role: "supabase_admin", name: "Supabase",
		replication:    "give it the right as postgres; before Postgres 17 only postgres itself can replicate",
		replicationSQL: alterRole,
	},
	{
		role: "avnadmin", name: "Aiven",
		replication:    "give it the right as avnadmin",
		replicationSQL: alterRole,
	},
}

// findVendor recognises a service by a role that only it has.
func findVendor(ctx context.Context, conn *pgx.Conn) (vendor, error) {
	roles := make([]string, len(vendors))
	for i, v := range vendors {
		roles[i] = v.role
	}
	rows, err := conn.Query(ctx, `select rolname from pg_roles where rolname = any ($1)`, roles)
	if err != nil {
		return vendor{}, err
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(found) == 0 {
		return vendor{}, err
	}
	for _, v := range vendors {
		if v.role == found[0] {
			return v, nil
		}
	}
	return vendor{}, nil
}

// administrator says as whom a setting of the server is changed.
func (p *patient) administrator() string {
	if p.vendor.name != "" {
		return "as a parameter of " + p.vendor.name
	}
	return "as superuser"
}
