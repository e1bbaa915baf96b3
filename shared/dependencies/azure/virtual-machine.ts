import * as z from "zod";
import { HOUR_SECONDS } from "../../platform/time.ts";
import type { Refresh } from "../edge.ts";
import { type ConfigLocation, type Finder, propertiesOf, usesIn } from "./finder.ts";

const text = z.string().nullish();
const osProfile = z
  .object({
    secrets: z.array(z.object({ vaultCertificates: z.array(z.object({ certificateUrl: text })).nullish() })).nullish(),
  })
  .nullish();
const extension = z.object({
  type: text,
  settings: z
    .object({
      secretsManagementSettings: z
        .object({
          pollingIntervalInS: z.union([z.string(), z.number()]).nullish(),
          observedCertificates: z.array(z.union([z.string(), z.object({ url: text })])).nullish(),
        })
        .nullish(),
    })
    .nullish(),
});
const machine = z.object({ osProfile });
const scaleSet = z.object({
  virtualMachineProfile: z
    .object({
      osProfile,
      extensionProfile: z
        .object({
          extensions: z.array(z.object({ name: text, properties: extension.nullish() })).nullish(),
        })
        .nullish(),
    })
    .nullish(),
});

/**
 * Finds certificates that were installed on virtual machines at their creation.
 *
 * subscription-reading.ts calls `find` for each machine that Resource Graph returns.
 */
export const virtualMachine: Finder = {
  types: ["microsoft.compute/virtualmachines"],
  kind: () => "virtualMachine",
  // Only resources whose properties name a vault are queried.
  properties: "namingVault",
  find: (row, { names }) => usesIn(row, certificatesOf(propertiesOf(row, machine).osProfile), names.ofUrl),
};

/**
 * Finds certificates of the extension that keeps them up to date:
 * https://learn.microsoft.com/azure/virtual-machines/extensions/key-vault-linux
 */
export const virtualMachineExtension: Finder = {
  types: ["microsoft.compute/virtualmachines/extensions"],
  kind: () => "virtualMachine",
  properties: "namingVault",
  find: (row, { names }) => usesIn(row, observedBy(propertiesOf(row, extension), ""), names.ofUrl),
};

/** Finds certificates of scale sets: installed ones, and those that the extension keeps up to date. */
export const virtualMachineScaleSet: Finder = {
  types: ["microsoft.compute/virtualmachinescalesets"],
  kind: () => "virtualMachine",
  properties: "namingVault",

  find(row, { names }) {
    const { osProfile, extensionProfile } = propertiesOf(row, scaleSet).virtualMachineProfile ?? {};
    const observed = (extensionProfile?.extensions ?? []).flatMap(({ name, properties }) =>
      observedBy(properties, `extensions/${name ?? "?"}/`),
    );
    return usesIn(row, [...certificatesOf(osProfile), ...observed], names.ofUrl);
  },
};

/** Returns the certificates of the machine's profile. They stay unchanged after its creation, even without a version. */
function certificatesOf(profile: z.infer<typeof osProfile>): ConfigLocation[] {
  const urls = (profile?.secrets ?? []).flatMap(({ vaultCertificates }) => vaultCertificates ?? []);
  return urls.map(({ certificateUrl }, index) => ({
    evidence: `osProfile.secrets/${index}`,
    text: certificateUrl,
    refresh: { how: "willBreak" },
  }));
}

/** Returns the certificates that the Key Vault extension of a machine keeps up to date. */
function observedBy(given: z.infer<typeof extension> | null | undefined, evidencePrefix: string): ConfigLocation[] {
  if (!/^KeyVaultFor(Linux|Windows)$/i.test(given?.type ?? "")) return [];
  const { pollingIntervalInS, observedCertificates } = given?.settings?.secretsManagementSettings ?? {};
  const seconds = Number(pollingIntervalInS);
  const slowestSeconds = Number.isInteger(seconds) && seconds > 0 ? seconds : HOUR_SECONDS;
  const refresh: Refresh = { how: "automatic", slowestSeconds };
  return (observedCertificates ?? []).map((one, index) => ({
    evidence: `${evidencePrefix}observedCertificates/${index}`,
    text: typeof one === "string" ? one : one.url,
    refresh,
  }));
}
