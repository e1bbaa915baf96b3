import { afterAll, beforeAll, expect, test } from "vitest";
import { type Azurite, startAzurite } from "../../infra/local/azurite.ts";
import type { Cloud } from "../../infra/local/cloud/cloud.ts";
import { anchorSecret, keyVaultAnchor } from "../../shared/audit/chain/anchor.ts";
import { CloudFailure } from "../../shared/azure/failure.ts";
import { createIdentity } from "../../shared/azure/identity.ts";
import { createServiceKeyVault } from "../../shared/azure/service-key-vault.ts";
import type { Config } from "../../shared/config/config.ts";
import { liveIn } from "../azure/live-cloud.ts";
import { IMPATIENT, recordingLog } from "../azure/services.ts";
import { by, openRoom } from "./support.ts";

let azurite: Azurite;
let cloud: Cloud;
let config: Config;
beforeAll(async () => {
  azurite = await startAzurite();
  ({ cloud, config } = await liveIn({ company: "small" }));
});
afterAll(() => Promise.all([azurite.stop(), cloud.stop()]));

const vault = (change: Partial<Config> = {}) => {
  const changed = { ...config, ...change };
  return createServiceKeyVault({
    config: changed,
    identity: createIdentity(changed),
    log: recordingLog(),
    limits: IMPATIENT,
  });
};

test("the service's own key vault remembers the newest digest, in one version however often it changes", async () => {
  const anchor = keyVaultAnchor(vault()!, "devstoreaccount1");
  const room = openRoom(azurite.connectionString());
  const audit = room.instance({ anchor });
  expect(await anchor.read()).toBeUndefined();
  await audit.append(by("ada"));
  for (const number of [1, 2, 3]) {
    room.clock.addMinutes(number === 1 ? 12 : 10);
    await audit.seal();
    expect(await anchor.read()).toMatchObject({ number });
  }
  expect((await audit.verify({})).anchor).toMatchObject({ state: "matches", number: 3, interval: "2026-11-21T10:20Z" });

  const versions = cloud.control.counts();
  expect(versions).toMatchObject({ "keyvault.setSecret": 1 });
  expect(anchorSecret("devstoreaccount1")).toMatch(/^[0-9a-zA-Z-]{1,127}$/);
});

test("a vault that does not answer is told as a failure of the cloud", async () => {
  const anchor = keyVaultAnchor(
    vault({ SERVICE_KEY_VAULT_URL: "https://gone.vault.localhost:1" })!,
    "devstoreaccount1",
  );
  await expect(anchor.read()).rejects.toBeInstanceOf(CloudFailure);
});

test("no address, no vault; an address that is no key vault's is refused", () => {
  expect(vault({ SERVICE_KEY_VAULT_URL: undefined })).toBeUndefined();
  expect(() => vault({ SERVICE_KEY_VAULT_URL: "https://example.com" })).toThrow(CloudFailure);
});
