import { expect, test } from "vitest";
import { keyVaultNames } from "../../shared/dependencies/azure/key-vault-names.ts";
import { summaryOf } from "../../shared/dependencies/logs/query.ts";

// Tests of the addresses of assets in rows of Key Vault's logs.

const AT = "2026-11-21T10:00:00Z";
const SECRET = "https://kv-a.vault.azure.net/secrets/one";

/** Returns the asset that a log row with this address counts for. */
function assetOf(AssetUrl: string): string | undefined {
  const row = {
    Kind: "use",
    Day: AT,
    AssetUrl,
    OperationName: "SecretGet",
    ObjectId: "1",
    FirstAt: AT,
    LastAt: AT,
    Rows: 1,
  };
  const [use] = summaryOf([row], keyVaultNames("vault.azure.net")).uses;
  return use && `${use.vaultName} ${use.type} ${use.name}`;
}

test.each([
  [SECRET, "kv-a secret one"],
  [`${SECRET}?api-version=7.4`, "kv-a secret one"],
  [`${SECRET}?a=1?b=2`, "kv-a secret one"],
  [`${SECRET}?a\nb`, "kv-a secret one"],
  ["?", undefined],
  ["/", undefined],
])("the address %j counts for the asset %j", (url, asset) => {
  expect(assetOf(url)).toBe(asset);
});

test("an address of 100,000 question marks takes less than a second", () => {
  const start = performance.now();
  expect(assetOf(`${"?".repeat(100_000)}\n`)).toBeUndefined();
  expect(assetOf(`${SECRET}${"?".repeat(100_000)}\nx`)).toBe("kv-a secret one");
  expect(performance.now() - start).toBeLessThan(1000);
});
