import * as z from "zod";
import { syncFailure } from "../failures.ts";
import { notedMark, writeNumbered } from "../numbered-versions.ts";
import { MANAGED_BY, ownerNamed } from "../ownership-mark.ts";
import { type ProviderDependencies, SyncFailure, type SyncTarget } from "../provider.ts";
import { googleClient } from "./client.ts";
import type { GoogleSecrets, GoogleSettings } from "./configuration.ts";
import { crc32c } from "./crc32c.ts";

/**
 * Names of annotations: the record that owns the secret, and a note (numbered-versions.ts) that assigns a mark to a version,
 * such as `5f2c…-… version 3`. Annotations are used because labels allow only lower-case letters and no slash.
 */
const RECORD = "sync-record";
const NOTE = "sync-mark";

const Secret = z.object({
  name: z.string(),
  etag: z.string(),
  annotations: z.record(z.string(), z.string()).default({}),
});
const Version = z.object({ name: z.string().regex(/\/versions\/\d+$/), state: z.string() });
const VersionWithValue = z.object({ payload: z.object({ data: z.string() }) });

const numberOf = (name: string): number => Number(name.slice(name.lastIndexOf("/") + 1));

/**
 * Target in Google Secret Manager. A mark names the sync record and the source version of a write. Versions have no metadata,
 * so annotations of the secret contain the record that owns the secret, and the note that assigns the ID of a mark to a
 * version's number. There is no conditional write: a version that another writer adds between the read and the write is
 * recognized by its number and corrected by the next run. https://cloud.google.com/secret-manager/docs/reference/rest
 */
export function googleTarget(settings: GoogleSettings, secrets: GoogleSecrets, deps: ProviderDependencies): SyncTarget {
  const client = googleClient(settings, secrets, deps);
  const provider = `Google Secret Manager in ${settings.projectId}`;
  /** Describes a call for failures: what could not be done, and the permission that it needs. */
  const describeCall = (operation: string, permission: string) => ({
    operation,
    grant: `secretmanager.${permission} on this secret`,
  });

  function read<T extends z.ZodType>(schema: T, answer: unknown, operation: string): z.infer<T> {
    const { data, success } = schema.safeParse(answer);
    if (!success)
      throw syncFailure("badResponse", { operation, provider, grant: "" }, "the answer is not as documented");
    return data;
  }

  /** Returns the secret and its latest version, without a value; undefined if the secret does not exist. */
  async function readSecret(name: string, signal: AbortSignal | undefined) {
    const operation = `inspect the secret ${name}`;
    const existing = await client.call(
      "GET",
      `secrets/${name}`,
      describeCall(operation, "secrets.get"),
      undefined,
      signal,
    );
    if (existing === undefined) return undefined;
    const call = describeCall(operation, "versions.get");
    const latest = await client.call("GET", `secrets/${name}/versions/latest`, call, undefined, signal);
    return {
      secret: read(Secret, existing, operation),
      latest: latest === undefined ? undefined : read(Version, latest, operation),
    };
  }

  return {
    async describe(name, signal) {
      const existing = await readSecret(name, signal);
      if (!existing) return { exists: false };
      const { annotations } = existing.secret;
      const current = existing.latest === undefined ? 0 : numberOf(existing.latest.name);
      return {
        exists: true,
        ownedBy: ownerNamed(annotations[RECORD]),
        currentMarkId: existing.latest?.state === "ENABLED" ? notedMark(annotations[NOTE], current) : undefined,
        version: String(current),
      };
    },

    async put(name, value, mark, expected, signal) {
      const operation = `write the secret ${name}`;
      const ownerAnnotations = { "managed-by": MANAGED_BY, [RECORD]: mark.recordId, "sync-source": mark.source };
      /** The secret as `readCurrent` read it, or as the last `writeNote` left it. */
      let existing: Awaited<ReturnType<typeof readSecret>>;
      const bytes = Buffer.from(value);
      // Calls `readCurrent` once, first. If the current version has this mark, that is all. Otherwise calls `writeNote` (with the
      // next number, as an intention), `write` and `writeNote`. Calls `hasValue` only if an earlier call noted the intention and
      // crashed: if the current version has the value, only the last `writeNote` follows.
      return await writeNumbered(
        {
          async readCurrent() {
            existing = await readSecret(name, signal);
            const enabled = existing?.latest?.state === "ENABLED";
            // A disabled version does not count as written, whatever the annotation says. So a new one is written.
            const note = enabled ? existing?.secret.annotations[NOTE] : undefined;
            return { current: existing?.latest === undefined ? 0 : numberOf(existing.latest.name), note };
          },
          async writeNote(text) {
            const annotations = { ...existing?.secret.annotations, ...ownerAnnotations, [NOTE]: text };
            const answer = existing
              ? await client.call(
                  "PATCH",
                  `secrets/${name}?updateMask=annotations`,
                  describeCall(operation, "secrets.update"),
                  { annotations, etag: existing.secret.etag },
                  signal,
                )
              : await client.call(
                  "POST",
                  `secrets?secretId=${name}`,
                  describeCall(operation, "secrets.create"),
                  { replication: replicationIn(settings), annotations },
                  signal,
                );
            existing = { secret: read(Secret, answer, operation), latest: existing?.latest };
          },
          async write() {
            const payload = { data: bytes.toString("base64"), dataCrc32c: String(crc32c(bytes)) };
            const call = describeCall(operation, "versions.add");
            const answer = await client.call("POST", `secrets/${name}:addVersion`, call, { payload }, signal);
            return numberOf(read(Version, answer, operation).name);
          },
          async hasValue(version) {
            try {
              const call = describeCall(`compare the secret ${name}`, "versions.access");
              const answer = await client.call(
                "GET",
                `secrets/${name}/versions/${version}:access`,
                call,
                undefined,
                signal,
              );
              return (
                answer !== undefined &&
                read(VersionWithValue, answer, operation).payload.data === bytes.toString("base64")
              );
            } catch (error) {
              // The permission to read values is optional. Without it, the value is written once more.
              if (error instanceof SyncFailure && error.code === "accessDenied") return false;
              throw error;
            }
          },
        },
        mark,
        expected,
        { ...describeCall(operation, "versions.add"), provider },
      );
    },

    async remove(name, signal) {
      const call = describeCall(`delete the secret ${name}`, "secrets.delete");
      await client.call("DELETE", `secrets/${name}`, call, undefined, signal);
    },
  };
}

const replicationIn = ({ location }: GoogleSettings): object =>
  location === undefined ? { automatic: {} } : { userManaged: { replicas: [{ location }] } };
