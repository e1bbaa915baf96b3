import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { ROOT } from "../cache.ts";
import { caseRunner, type Part } from "../part.ts";
import { pythonEnvironment } from "../python.ts";
import { freePort, startServer } from "../servers.ts";
import { Copy, configure, rotateSource, sourceValue, startSync } from "../sync.ts";

// Sync to OpenBao, a fork of HashiCorp Vault with the same API, by the provider `hashicorp`. The cases read
// OpenBao with its own command, `bao`.

const ROOT_TOKEN = "root-of-the-conformance-run";

/** The permissions of the AppRole: the policy of docs/sync-providers.md, for the paths of these cases. */
const POLICY = /```hcl\n(.*?)```/s
  .exec(readFileSync(path.join(ROOT, "docs/sync-providers.md"), "utf8"))![1]!
  .replaceAll("/app/", "/shop/");

export const part: Part = {
  name: "openbao",
  description: "sync copies secrets to OpenBao, with the provider of HashiCorp Vault",
  programs: ["openbao"],
  needs: ["python"],
  async *run() {
    const folder = mkdtempSync(path.join(tmpdir(), "openbao-"));
    const { address, authority, bao, stop } = await startOpenBao(folder);
    try {
      const service = await startSync({ PRIVATE_TARGET_HOSTS: new URL(address).host });
      try {
        const runCase = caseRunner("openbao");
        const settings = { address, caCertificate: readFileSync(authority, "utf8") };
        /** Compares the value in OpenBao with that of the source in Key Vault. */
        const value = async (name: string) => {
          const storedValue = await bao("kv", "get", "-mount=secret", "-field=value", name).catch((error: unknown) => {
            // "No data found": the newest version is deleted. "No value found": there is no version at all.
            if (!/No (data|value) found/.test(String((error as { stderr?: string }).stderr))) throw error;
            return undefined;
          });
          return storedValue === sourceValue(service)
            ? "the value"
            : storedValue === undefined
              ? "no value"
              : "another value";
        };
        const metadata = async (name: string) =>
          JSON.parse(await bao("kv", "metadata", "get", "-mount=secret", "-format=json", name)).data;
        const target = (targetName: string) => ({ targetProvider: "hashicorp", targetService: "kv", targetName });

        yield await runCase(
          "configuration without the server's certificate authority",
          /^400 .*UNABLE_TO_VERIFY_LEAF_SIGNATURE/,
          () => configure(service, "hashicorp", { address, token: ROOT_TOKEN }),
        );
        yield await runCase("configuration with a wrong token", /^400 .*token was not accepted/, () =>
          configure(service, "hashicorp", { ...settings, token: "another" }),
        );
        yield await runCase("configuration with a mount that does not exist", /^400 .*lacks the permission/, () =>
          configure(service, "hashicorp", { ...settings, token: ROOT_TOKEN, mount: "none" }),
        );
        yield await runCase("configuration with an AppRole", "configured", async () => {
          const policy = path.join(folder, "policy.hcl");
          writeFileSync(policy, POLICY);
          await bao("policy", "write", "lifecycle", policy);
          await bao("auth", "enable", "approle");
          await bao("write", "auth/approle/role/lifecycle", "token_policies=lifecycle", "token_ttl=60s");
          const roleId = await bao("read", "-field=role_id", "auth/approle/role/lifecycle/role-id");
          const secretId = await bao("write", "-f", "-field=secret_id", "auth/approle/role/lifecycle/secret-id");
          return await configure(service, "hashicorp", { ...settings, roleId, secretId });
        });
        let copy: Copy;
        const name = "shop/db-password";
        yield await runCase("a secret is copied", "inSync, the value", async () => {
          copy = await Copy.create(service, target(name));
          return `${await copy.state()}, ${await value(name)}`;
        });
        yield await runCase("metadata names the owner", "credential-lifecycle", async () => {
          const { custom_metadata } = await metadata(name);
          return `${custom_metadata?.["managed-by"]}`;
        });
        yield await runCase("a second run writes nothing", "inSync, 1 version", async () => {
          const state = await copy.sync();
          return `${state}, ${(await metadata(name)).current_version} version`;
        });
        yield await runCase("a new version of the source is copied", "inSync, the value", async () => {
          rotateSource(service, "rotated for OpenBao");
          return `${await copy.sync()}, ${await value(name)}`;
        });
        yield await runCase("changed by hand: restored", "another value, inSync, the value", async () => {
          await bao("kv", "put", "-mount=secret", name, "value=by hand");
          return `${await value(name)}, ${await copy.sync()}, ${await value(name)}`;
        });
        yield await runCase("deleted by hand: created again", "no value, inSync, the value", async () => {
          await bao("kv", "delete", "-mount=secret", name);
          return `${await value(name)}, ${await copy.sync()}, ${await value(name)}`;
        });
        yield await runCase(
          "destroyed by hand with all versions: created again",
          "no value, inSync, the value",
          async () => {
            await bao("kv", "metadata", "delete", "-mount=secret", name);
            return `${await value(name)}, ${await copy.sync()}, ${await value(name)}`;
          },
        );
        yield await runCase("belongs to somebody else: not overwritten", "failing targetNotOwned, theirs", async () => {
          await bao("kv", "put", "-mount=secret", "shop/theirs", "value=theirs");
          const state = await (await Copy.create(service, target("shop/theirs"))).state();
          return `${state}, ${await bao("kv", "get", "-mount=secret", "-field=value", "shop/theirs")}`;
        });
        yield await runCase("path that the policy does not allow", "failing accessDenied", async () =>
          (await Copy.create(service, target("other/db-password"))).state(),
        );
        yield await runCase("role deleted, then created again", "failing badCredentials, inSync", async () => {
          await bao("delete", "auth/approle/role/lifecycle");
          await bao("token", "revoke", "-mode=path", "auth/approle");
          const before = await copy.sync();
          await bao("write", "auth/approle/role/lifecycle", "token_policies=lifecycle");
          const roleId = await bao("read", "-field=role_id", "auth/approle/role/lifecycle/role-id");
          const secretId = await bao("write", "-f", "-field=secret_id", "auth/approle/role/lifecycle/secret-id");
          await configure(service, "hashicorp", { ...settings, roleId, secretId });
          return `${before}, ${await copy.sync()}`;
        });
        yield await runCase("record deleted with its copy", "removed, no value", async () => {
          return `${await copy.remove()}, ${await value(name)}`;
        });
        yield await runCase("sealed", "failing unreachable", async () => {
          const other = await Copy.create(service, target("shop/sealed"));
          await other.state();
          await bao("operator", "seal");
          return await other.sync();
        });
      } finally {
        await service.stop();
      }
    } finally {
      await stop();
    }
  },
};

/**
 * Starts OpenBao in memory, with the secrets engine `secret`.
 *
 * @param folder - For its certificates and the home folder of its command
 * @returns `authority`: the path of the certificate authority. `bao` runs the command, and returns its standard output.
 */
async function startOpenBao(folder: string) {
  const listener = `127.0.0.1:${await freePort()}`;
  const address = `https://${listener}`;
  const authority = path.join(folder, "vault-ca.pem");
  const program = path.join(pythonEnvironment(), "bao");
  const environment = { BAO_ADDR: address, BAO_CACERT: authority, BAO_TOKEN: ROOT_TOKEN, HOME: folder };
  const bao = async (...args: string[]): Promise<string> => {
    const result = await promisify(execFile)(program, args, { env: { ...process.env, ...environment } });
    return result.stdout.trim();
  };
  const options = ["-dev-tls", `-dev-tls-cert-dir=${folder}`, `-dev-listen-address=${listener}`];
  const stop = await startServer(
    [program, "server", ...options, `-dev-root-token-id=${ROOT_TOKEN}`],
    environment,
    // The port is open before the secrets engine is there.
    () => bao("kv", "put", "-mount=secret", "ready", "value=yes"),
  );
  return { address, authority, bao, stop };
}
