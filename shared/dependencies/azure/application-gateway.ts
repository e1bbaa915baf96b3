import * as z from "zod";
import { HOUR_SECONDS } from "../../platform/time.ts";
import { type Finder, propertiesOf, usesIn } from "./finder.ts";

const certificates = z
  .array(
    z.object({
      name: z.string(),
      properties: z.object({ keyVaultSecretId: z.string().nullish() }).nullish(),
    }),
  )
  .nullish();
const listeners = z
  .array(
    z.object({
      properties: z
        .object({
          hostName: z.string().nullish(),
          hostNames: z.array(z.string()).nullish(),
          sslCertificate: z.object({ id: z.string() }).nullish(),
        })
        .nullish(),
    }),
  )
  .nullish()
  // A listener that can't be read must not hide the certificates.
  .catch([]);
const properties = z.object({
  sslCertificates: certificates,
  trustedRootCertificates: certificates,
  httpListeners: listeners,
});

/**
 * Finds certificates of application gateways that come from key vaults. Gateways check for new versions every four hours:
 * https://learn.microsoft.com/azure/application-gateway/key-vault-certs
 *
 * subscription-reading.ts calls `find` for each gateway that Resource Graph returns.
 */
export const applicationGateway: Finder = {
  types: ["microsoft.network/applicationgateways"],
  kind: () => "applicationGateway",
  // Only resources whose properties name a vault are queried.
  properties: "namingVault",

  find(row, { names }) {
    const { sslCertificates, trustedRootCertificates, httpListeners } = propertiesOf(row, properties);
    /** Returns the host names of the listeners with a certificate of the gateway. */
    const hostsOf = (certificate: string) =>
      (httpListeners ?? []).flatMap(({ properties: listener }) => {
        // The ID of a certificate ends with `/sslCertificates/<name>`.
        const isServed = listener?.sslCertificate?.id.split("/").at(-1)?.toLowerCase() === certificate.toLowerCase();
        return isServed ? [listener?.hostName, ...(listener?.hostNames ?? [])] : [];
      });
    const locations = Object.entries({ sslCertificates, trustedRootCertificates }).flatMap(([list, entries]) =>
      (entries ?? []).map(({ name, properties }) => ({
        evidence: `${list}/${name}`,
        text: properties?.keyVaultSecretId,
        refresh: { how: "automatic", slowestSeconds: 4 * HOUR_SECONDS } as const,
        ...(list === "sslCertificates" && { hosts: hostsOf(name) }),
      })),
    );
    return usesIn(row, locations, names.ofUrl);
  },
};
