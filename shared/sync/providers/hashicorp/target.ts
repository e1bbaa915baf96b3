import * as z from "zod";
import { syncFailure } from "../failures.ts";
import { notedMark, writeNumbered } from "../numbered-versions.ts";
import { MANAGED_BY, ownerNamed } from "../ownership-mark.ts";
import { type Mark, type ProviderDependencies, SyncFailure, type SyncTarget } from "../provider.ts";
import { hashicorpClient } from "./client.ts";
import { type HashicorpSecrets, type HashicorpSettings, mountOf } from "./configuration.ts";

/** Member of the data that contains the value. */
const VALUE = "value";

/**
 * Keys of `custom_metadata`: the record that owns the secret, and a note (numbered-versions.ts) that assigns a mark to a
 * version, such as `5f2c…-… version 3`. Values have at most 512 characters.
 */
const RECORD = "sync-record";
const NOTE = "sync-mark";

const Metadata = z.object({
  data: z.object({
    current_version: z.number(),
    custom_metadata: z.record(z.string(), z.string()).nullish(),
    versions: z.record(z.string(), z.object({ deletion_time: z.string(), destroyed: z.boolean() })).default({}),
  }),
});
const Written = z.object({ data: z.object({ version: z.number() }) });
const Read = z.object({ data: z.object({ data: z.record(z.string(), z.unknown()) }) });

/** A destroyed version can't be recovered. So it does not count as deleted, but as a value that someone else changed. */
const isDeleted = ({ current_version, versions }: z.infer<typeof Metadata>["data"]): boolean => {
  const current = versions[String(current_version)];
  return current !== undefined && current.deletion_time !== "" && !current.destroyed;
};

/**
 * Target in the KV secrets engine of HashiCorp Vault, version 2. Values are written with check-and-set of the previous version.
 * A mark names the sync record and the source version of a write. The metadata contains the record that owns the secret, and
 * the note that assigns the ID of a mark to a version's number. https://developer.hashicorp.com/vault/api-docs/secret/kv/kv-v2
 */
export function hashicorpTarget(
  settings: HashicorpSettings,
  secrets: HashicorpSecrets,
  deps: ProviderDependencies,
): SyncTarget {
  const client = hashicorpClient(settings, secrets, deps);
  const mount = mountOf(settings);
  const provider = `Vault at ${new URL(settings.address).host}`;
  const path = (part: string, name: string) => `${mount}/${part}/${name.split("/").map(encodeURIComponent).join("/")}`;
  const grant = (part: string, capabilities: string) => `${capabilities} on ${mount}/${part}/… in its policy`;

  function read<T extends z.ZodType>(schema: T, answer: unknown, operation: string): z.infer<T> {
    const { data, success } = schema.safeParse(answer);
    if (!success)
      throw syncFailure("badResponse", { operation, provider, grant: "" }, "the answer is not as documented");
    return data;
  }

  async function readMetadata(name: string, signal: AbortSignal | undefined) {
    const operation = `inspect the secret ${name}`;
    const call = { operation, grant: grant("metadata", "read") };
    const answer = await client.call("GET", path("metadata", name), call, undefined, signal);
    return answer === undefined ? undefined : read(Metadata, answer, operation).data;
  }

  return {
    async describe(name, signal) {
      const metadata = await readMetadata(name, signal);
      if (!metadata || metadata.current_version === 0) return { exists: false };
      const current = metadata.versions[String(metadata.current_version)];
      const isGone = isDeleted(metadata);
      return {
        exists: !isGone,
        ownedBy: ownerNamed(metadata.custom_metadata?.[RECORD]),
        currentMarkId: current?.destroyed
          ? undefined
          : notedMark(metadata.custom_metadata?.[NOTE], metadata.current_version),
        version: String(metadata.current_version),
        // The engine reports no date: a deleted version stays until enough newer ones are written.
        deletedUntil: isGone ? "unknown" : undefined,
      };
    },

    async put(name, value, mark: Mark, expected, signal) {
      const operation = `write the secret ${name}`;
      const describedCall = { operation, provider, grant: grant("data", "create and update") };
      let customMetadata: Record<string, string> = {};
      return await writeNumbered(
        {
          async readCurrent() {
            const metadata = await readMetadata(name, signal);
            customMetadata = metadata?.custom_metadata ?? {};
            if (metadata && isDeleted(metadata))
              throw syncFailure("targetDeleted", describedCall, "its current version is deleted");
            return { current: metadata?.current_version ?? 0, note: customMetadata[NOTE] };
          },
          async writeNote(text) {
            const ownerMetadata = { "managed-by": MANAGED_BY, [RECORD]: mark.recordId, "sync-source": mark.source };
            const body = { custom_metadata: { ...customMetadata, ...ownerMetadata, [NOTE]: text } };
            const call = { operation, grant: grant("metadata", "create and update") };
            await client.call("POST", path("metadata", name), call, body, signal);
          },
          async write(current) {
            const body = { options: { cas: current }, data: { [VALUE]: value } };
            const answer = await client.call("POST", path("data", name), describedCall, body, signal);
            return read(Written, answer, operation).data.version;
          },
          async hasValue(version) {
            try {
              const call = { operation: `compare the secret ${name}`, grant: grant("data", "read") };
              const address = `${path("data", name)}?version=${version}`;
              const answer = await client.call("GET", address, call, undefined, signal);
              return answer !== undefined && read(Read, answer, operation).data.data[VALUE] === value;
            } catch (error) {
              // The permission to read values is optional. Without it, the value is written once more.
              if (error instanceof SyncFailure && error.code === "accessDenied") return false;
              throw error;
            }
          },
        },
        mark,
        expected,
        describedCall,
      );
    },

    async undelete(name, signal) {
      const version = (await readMetadata(name, signal))?.current_version ?? 0;
      const call = { operation: `undelete the secret ${name}`, grant: grant("undelete", "update") };
      await client.call("POST", path("undelete", name), call, { versions: [version] }, signal);
    },

    async remove(name, signal) {
      const call = { operation: `delete the secret ${name}`, grant: grant("data", "delete") };
      await client.call("DELETE", path("data", name), call, undefined, signal);
    },
  };
}
