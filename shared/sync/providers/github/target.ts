import * as z from "zod";
import { syncFailure } from "../failures.ts";
import type { ProviderDependencies, SyncTarget } from "../provider.ts";
import { githubClient } from "./client.ts";
import type { GithubSecrets, GithubSettings } from "./configuration.ts";
import { pathAndName } from "./names.ts";

const StoredSecret = z.object({ name: z.string(), updated_at: z.string() });
const PublicKey = z.object({ key_id: z.string(), key: z.base64() });

/**
 * Target in GitHub Actions: secrets of a repository or an environment. GitHub returns only whether a secret exists and when it was
 * last written. It returns no values, and can't store which record and source version a value comes from. The value is encrypted
 * with the public key of the repository or environment. https://docs.github.com/rest/actions/secrets
 */
export function githubTarget(settings: GithubSettings, secrets: GithubSecrets, deps: ProviderDependencies): SyncTarget {
  const client = githubClient(settings, secrets, deps);
  const provider = "GitHub";

  return {
    async describe(name, signal) {
      const { path, secret } = pathAndName(name);
      const operation = `inspect the secret ${name}`;
      const answer = await client.call("GET", `${path}/${secret}`, operation, [200, 404], undefined, signal);
      if (answer.status === 404) return { exists: false };
      const { data, success } = StoredSecret.safeParse(answer.json);
      if (!success)
        throw syncFailure("badResponse", { operation, provider, grant: "" }, "the answer is not as documented");
      return { exists: true, version: data.updated_at };
    },

    async put(name, value, _mark, _expected, signal) {
      const { path, secret } = pathAndName(name);
      const operation = `write the secret ${name}`;
      const answer = await client.call("GET", `${path}/public-key`, operation, [200], undefined, signal);
      const { data: key, success } = PublicKey.safeParse(answer.json);
      if (!success)
        throw syncFailure("badResponse", { operation, provider, grant: "" }, "the answer has no public key");
      const body = { encrypted_value: await encrypt(value, key.key), key_id: key.key_id };
      const written = await client.call("PUT", `${path}/${secret}`, operation, [201, 204], body, signal);
      return { created: written.status === 201 };
    },

    async remove(name, signal) {
      const { path, secret } = pathAndName(name);
      await client.call("DELETE", `${path}/${secret}`, `delete the secret ${name}`, [204, 404], undefined, signal);
    },
  };
}

/**
 * Encrypts a value with the public key of the repository or environment (a sealed box) and returns it in base64.
 * https://docs.github.com/rest/guides/encrypting-secrets-for-the-rest-api
 */
async function encrypt(value: string, publicKey: string): Promise<string> {
  const { default: sodium } = await import("libsodium-wrappers");
  await sodium.ready;
  return Buffer.from(sodium.crypto_box_seal(value, Buffer.from(publicKey, "base64"))).toString("base64");
}
