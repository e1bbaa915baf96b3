import type { PostgresConnection } from "../../platform/azure/postgresql.ts";

/**
 * What the catalog of a database says about the rights of a user: attributes, settings, memberships, owned objects and
 * privileges. Every user can read the catalog. `$1`: the user. `$2`: the other user of the pair, whose memberships in the user
 * don't count. Objects of other databases are not listed, because their privileges are only in those databases.
 * https://www.postgresql.org/docs/current/catalogs.html
 */
const GRANTS = `
WITH me AS (SELECT * FROM pg_roles WHERE rolname = $1),
     other AS (SELECT oid FROM pg_roles WHERE rolname = $2),
objects AS (
  SELECT 'schema ' || nspname AS name, nspacl AS acl FROM pg_namespace
  UNION ALL SELECT 'relation ' || oid::regclass::text, relacl FROM pg_class
  UNION ALL SELECT 'column ' || attrelid::regclass::text || '.' || attname, attacl FROM pg_attribute WHERE attacl IS NOT NULL
  UNION ALL SELECT 'function ' || oid::regprocedure::text, proacl FROM pg_proc
  UNION ALL SELECT 'type ' || oid::regtype::text, typacl FROM pg_type
  UNION ALL SELECT 'language ' || lanname, lanacl FROM pg_language
  UNION ALL SELECT 'database ' || datname, datacl FROM pg_database
  UNION ALL SELECT 'tablespace ' || spcname, spcacl FROM pg_tablespace
  UNION ALL SELECT 'foreign data wrapper ' || fdwname, fdwacl FROM pg_foreign_data_wrapper
  UNION ALL SELECT 'foreign server ' || srvname, srvacl FROM pg_foreign_server
  UNION ALL SELECT 'large object ' || oid::text, lomacl FROM pg_largeobject_metadata
  UNION ALL SELECT 'new objects (' || defaclobjtype::text || ') of ' || defaclrole::regrole::text
    || coalesce(' in ' || nullif(defaclnamespace, 0)::regnamespace::text, ''), defaclacl FROM pg_default_acl
)
SELECT kind AS label, kind AS full FROM me, LATERAL (VALUES
  ('superuser', rolsuper), ('inheritance of rights', rolinherit), ('CREATEROLE', rolcreaterole), ('CREATEDB', rolcreatedb),
  ('LOGIN', rolcanlogin), ('REPLICATION', rolreplication), ('BYPASSRLS', rolbypassrls)) AS attribute (kind, has) WHERE has
UNION ALL SELECT 'connection limit ' || rolconnlimit::text, 'connection limit ' || rolconnlimit::text FROM me
UNION ALL SELECT 'expiry ' || rolvaliduntil::text, 'expiry ' || rolvaliduntil::text FROM me WHERE rolvaliduntil IS NOT NULL
UNION ALL SELECT 'setting ' || split_part(s, '=', 1), 'setting ' || setdatabase::text || s
  FROM pg_db_role_setting, me, unnest(setconfig) AS s WHERE setrole = me.oid
UNION ALL SELECT 'membership in ' || roleid::regrole::text, 'membership in ' || roleid::text || admin_option::text
    || coalesce(to_jsonb(m) ->> 'inherit_option', '') || coalesce(to_jsonb(m) ->> 'set_option', '')
  FROM pg_auth_members AS m, me WHERE member = me.oid AND roleid NOT IN (SELECT oid FROM other)
UNION ALL SELECT 'ownership of ' || pg_describe_object(classid, objid, objsubid), 'owner ' || classid::text || ' ' || objid::text
  FROM pg_shdepend, me WHERE refclassid = 'pg_authid'::regclass AND refobjid = me.oid AND deptype = 'o'
    AND dbid IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
    AND NOT EXISTS (SELECT FROM other WHERE pg_has_role(other.oid, me.oid, 'USAGE'))
UNION ALL SELECT DISTINCT privilege_type || ' on ' || name, privilege_type || is_grantable::text || name
  FROM objects, me, LATERAL aclexplode(acl) AS granted WHERE grantee = me.oid AND grantor <> grantee
UNION ALL SELECT 'row policy ' || polname || ' of ' || polrelid::regclass::text, 'policy ' || oid::text
  FROM pg_policy, (SELECT oid AS id FROM me) AS role WHERE id = ANY (polroles)`;

interface Grant {
  /** Names the right, for users. */
  label: string;
  /** Everything that must be equal. It can contain the value of a setting: do not show it. */
  full: string;
}

/** Maximum number of differences in a message. */
const MAX_DIFFERENCES = 5;

/**
 * Compares the rights of two users, as far as the catalog of the connected database shows them.
 *
 * @returns one sentence for each right that only one of the users has, at most five.
 */
export async function differencesOfGrants(
  { query }: Pick<PostgresConnection, "query">,
  [first, second]: readonly [string, string],
): Promise<string[]> {
  const [ofFirst, ofSecond] = [
    await query<Grant>(GRANTS, [first, second]),
    await query<Grant>(GRANTS, [second, first]),
  ];
  const without = (grants: readonly Grant[], others: readonly Grant[]) => {
    // A user can have hundreds of thousands of rights: one for each privilege on each object.
    const known = new Set(others.map(({ full }) => full));
    return grants.filter(({ full }) => !known.has(full));
  };
  const sentences = [
    ...without(ofFirst, ofSecond).map(({ label }) => `${first} has ${label}, and ${second} has not.`),
    ...without(ofSecond, ofFirst).map(({ label }) => `${second} has ${label}, and ${first} has not.`),
  ];
  return [...new Set(sentences)].slice(0, MAX_DIFFERENCES);
}

const READINESS = `
SELECT u.name, r.oid IS NOT NULL AS "exists", coalesce(r.rolcanlogin, false) AS "canLogIn",
  coalesce(r.rolsuper, false) AS "isSuperuser", self.rolsuper OR (self.rolcreaterole
    AND (current_setting('server_version_num')::int < 160000 OR coalesce(pg_has_role(self.oid, r.oid, 'MEMBER WITH ADMIN OPTION'), false))) AS "canAlter"
FROM unnest($1::text[]) AS u (name) LEFT JOIN pg_roles AS r ON r.rolname = u.name
CROSS JOIN (SELECT * FROM pg_roles WHERE rolname = current_user) AS self`;

interface Readiness {
  name: string;
  exists: boolean;
  canLogIn: boolean;
  isSuperuser: boolean;
  canAlter: boolean;
}

/** Returns why the connected user could not set the passwords of users, as sentences. Empty if nothing is missing. */
export async function missingRights(
  { query }: Pick<PostgresConnection, "query">,
  users: readonly string[],
  signedInAs: string,
): Promise<string[]> {
  const rows = await query<Readiness>(READINESS, [users]);
  return rows.flatMap(({ name, exists, canLogIn, isSuperuser, canAlter }) => {
    if (!exists) return [`The server has no user ${name}.`];
    if (isSuperuser) return [`${name} is a superuser, whose password the service does not change.`];
    if (!canLogIn) return [`${name} may not sign in (NOLOGIN).`];
    return canAlter
      ? []
      : [`${signedInAs} may not set the password of ${name}: it needs CREATEROLE and ADMIN OPTION on ${name}.`];
  });
}
