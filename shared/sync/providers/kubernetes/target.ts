import * as z from "zod";
import { MANAGED_BY, markId, ownerNamed } from "../ownership-mark.ts";
import type { Mark, ProviderDependencies, SyncTarget } from "../provider.ts";
import { kubernetesClient } from "./client.ts";
import type { KubernetesSecrets, KubernetesSettings } from "./configuration.ts";
import { secretAndKey } from "./names.ts";

const RECORD = `${MANAGED_BY}/sync-record`;
const MARK = `${MANAGED_BY}/sync-mark`;
const SOURCE = `${MANAGED_BY}/sync-source`;

/** Requests only metadata, so that no value is sent. https://kubernetes.io/docs/reference/using-api/api-concepts */
const METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
/** JSON is valid YAML. https://kubernetes.io/docs/reference/using-api/server-side-apply */
const APPLY = "application/apply-patch+yaml";

/** Resource versions are stored in the history, so their length is limited. */
const resourceVersion = z.string().max(128);
const Metadata = z.object({
  kind: z.literal("PartialObjectMetadata"),
  metadata: z.object({
    resourceVersion,
    annotations: z.record(z.string(), z.string()).nullish(),
    managedFields: z
      .array(z.object({ manager: z.string().optional(), fieldsV1: z.record(z.string(), z.unknown()).optional() }))
      .nullish(),
  }),
});
const Stored = z.object({ kind: z.literal("Secret"), metadata: z.object({ resourceVersion }) });

/**
 * Target in Kubernetes: Secrets of one namespace. A record owns a whole Secret and writes one key of it. The Secret's
 * annotations contain the record and the mark of the last write, an ID of the record and the source version. `managedFields`,
 * which the server maintains, shows who wrote the current value of the key. After another writer changed the value, the mark no
 * longer counts, whatever the annotations say.
 * https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
 */
export function kubernetesTarget(
  settings: KubernetesSettings,
  secrets: KubernetesSecrets,
  deps: ProviderDependencies,
): SyncTarget {
  const client = kubernetesClient(settings, secrets, deps);
  const path = (secret: string) => `${client.secrets}/${secret}`;
  const manager = `fieldManager=${MANAGED_BY}`;

  /** Returns the Secret to send. With a resource version, the server rejects it if the Secret has another one now. */
  const objectWith = (name: string, value: string, mark: Mark, resourceVersion?: string) => {
    const { secret, key } = secretAndKey(name);
    return {
      apiVersion: "v1",
      kind: "Secret",
      metadata: {
        name: secret,
        labels: { "app.kubernetes.io/managed-by": MANAGED_BY },
        annotations: { [RECORD]: mark.recordId, [MARK]: markId(mark), [SOURCE]: mark.source },
        ...(resourceVersion !== undefined && { resourceVersion }),
      },
      data: { [key]: Buffer.from(value).toString("base64") },
    };
  };

  return {
    async describe(name, signal) {
      const { secret, key } = secretAndKey(name);
      const description = { operation: `inspect the Secret ${secret}`, grant: client.grant("get") };
      const secretMetadata = await client.call("GET", path(secret), description, Metadata, {
        accept: METADATA_ONLY,
        allowMissing: true,
        signal,
      });
      if (!secretMetadata) return { exists: false };
      const { annotations, managedFields, resourceVersion } = secretMetadata.metadata;
      // `f:data` and `f:<key>` are Kubernetes' names of the fields `data` and `<key>` in `fieldsV1`.
      const isOwnValue = (managedFields ?? []).some(({ manager: writer, fieldsV1 }) => {
        const data = fieldsV1?.["f:data"] as Record<string, unknown> | undefined;
        return writer === MANAGED_BY && data?.[`f:${key}`] !== undefined;
      });
      return {
        exists: true,
        ownedBy: ownerNamed(annotations?.[RECORD]),
        currentMarkId: isOwnValue ? annotations?.[MARK] : undefined,
        version: resourceVersion,
      };
    },

    async put(name, value, mark, expected, signal) {
      if (expected.currentMarkId === markId(mark)) return { version: expected.version, created: false };
      const { secret } = secretAndKey(name);
      const operation = `write the Secret ${secret}`;
      if (!expected.exists) {
        // Created with POST, which fails if another writer has created the Secret since. Apply would change that Secret.
        const description = { operation, grant: client.grant("create") };
        const body = objectWith(name, value, mark);
        const created = await client.call("POST", `${client.secrets}?${manager}`, description, Stored, {
          body,
          signal,
        });
        return { version: created?.metadata.resourceVersion, created: true };
      }
      const description = { operation, grant: client.grant("patch") };
      // The resource version makes the write fail if another writer changed the Secret since. Without it, apply would overwrite
      // the change. `force` takes over fields that another writer has set.
      const body = objectWith(name, value, mark, expected.version);
      const address = `${path(secret)}?${manager}&force=true`;
      const written = await client.call("PATCH", address, description, Stored, { body, type: APPLY, signal });
      return { version: written?.metadata.resourceVersion, created: false };
    },

    async remove(name, signal) {
      const { secret } = secretAndKey(name);
      const description = { operation: `delete the Secret ${secret}`, grant: client.grant("delete") };
      await client.call("DELETE", path(secret), description, z.unknown(), { allowMissing: true, signal });
    },
  };
}
