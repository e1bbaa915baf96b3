import * as z from "zod";
import { assetId } from "../inventory/asset.ts";
import { pageOf, pageParameters } from "../platform/http/paging.ts";
import { wholeNumber } from "../platform/http/whole-number.ts";
import type { Row } from "../platform/storage/entity.ts";
import {
  DEFAULT_PORT,
  ENDPOINT_PROBLEMS,
  type EndpointRecord,
  isDiscovered,
  isHostName,
  MAX_ADDED,
  PLATFORMS,
} from "./endpoint.ts";
import { describeProblems, isLate } from "./endpoint-state.ts";

/** Schemas and views of the endpoints at which certificates are served. */

const instant = z.iso.datetime();
const certificateId = z.string().min(1).max(300).meta({
  description: "ID of a certificate in a key vault.",
  example: "kv-payments-prod.certificate.www",
});
const host = z
  .string()
  .max(253)
  .toLowerCase()
  .refine(isHostName, "must be a host name such as www.example.com, without a scheme, port, path or wildcard")
  .meta({ description: "Host name.", example: "www.example.com" });
const platform = z.enum(PLATFORMS).meta({
  description:
    "Platform that serves the certificate, which decides when an old version is late: App Service after 24 hours, Application Gateway and API Management after 4, Container Apps after 12, Front Door after 72, `other` after 24.",
});

const Problem = z.object({
  code: z.enum(ENDPOINT_PROBLEMS).meta({
    description:
      "`oldCertificate`: an earlier version is served. `otherCertificate`: a certificate that is not in the vault. `otherName`: the certificate is not valid for the host. `incompleteChain`: intermediate certificates are missing. `expired`: the certificate has expired. `unreachable`: no handshake was possible. `blocked`: the address is not allowed.",
  }),
  detail: z.string().meta({
    description: "Description of the problem.",
    example: "An earlier version of the certificate is served.",
  }),
  action: z.string().meta({
    description: "Remedy.",
    example: "On your own servers, install the new version and reload the server.",
  }),
});

export const ServedCertificate = z
  .object({
    host: z.string().meta({ description: "Host name.", example: "www.example.com" }),
    port: z.int().meta({ description: "TCP port.", example: DEFAULT_PORT }),
    platform,
    resource: z
      .object({
        id: z.string().meta({
          description: "Resource ID.",
          example:
            "/subscriptions/8eab9bca-7137-4f76-a31c-dcc4acd2ff43/resourceGroups/rg-web/providers/Microsoft.Network/applicationGateways/agw-web",
        }),
        name: z.string().meta({ description: "Name of the resource.", example: "agw-web" }),
      })
      .nullable()
      .meta({ description: "Resource that a discovery of dependencies found. Null if a person added the endpoint." }),
    serial: z.string().nullable().meta({
      description: "Serial number of the last served certificate, hexadecimal. Null if none was read.",
      example: "0423a1b96f4d2c7e8890ab12cd34ef560712",
    }),
    current: z.boolean().nullable().meta({
      description:
        "Whether the vault's current version was served at the last check that reached the endpoint. Null when unknown, also if the vault has a later version than at that check.",
    }),
    since: instant.nullable().meta({
      description: "Time of the first check that found this serial number. Null if none was read.",
    }),
    late: z.boolean().meta({
      description: "Whether the platform's time to serve the vault's current version has passed without that version.",
    }),
    dueAt: instant.nullable().meta({
      description: "Time by which the platform should serve the current version. Null if it is served, or unknown.",
    }),
    expiresOn: instant.nullable().meta({ description: "Expiry of the served certificate. Null if none was read." }),
    protocol: z
      .string()
      .nullable()
      .meta({ description: "Version of TLS. Null if no handshake succeeded.", example: "TLSv1.3" }),
    problems: z.array(Problem).meta({ description: "Problems that the last check found." }),
    checkedAt: instant.nullable().meta({ description: "Time of the last check. Null before the first one." }),
  })
  .meta({ id: "ServedCertificate" });

export const CertificateEndpoint = ServedCertificate.extend({
  assetId: certificateId,
  addedAt: instant.meta({ description: "Time when the endpoint was added." }),
  addedBy: z.string().meta({
    description: "User who added the endpoint. `system` for a discovery of dependencies.",
    example: "maria.lopez",
  }),
}).meta({ id: "CertificateEndpoint" });

export const EndpointList = pageOf(CertificateEndpoint, "CertificateEndpointList");
export const EndpointQuery = z.strictObject({
  ...pageParameters,
  assetId: certificateId.optional(),
});
export const NewEndpoint = z
  .strictObject({
    assetId: certificateId,
    host,
    port: z
      .int()
      .min(1)
      .max(65_535)
      .default(DEFAULT_PORT)
      .meta({
        description: `Port: ${DEFAULT_PORT}, or one in the setting ENDPOINT_PORTS. Default: ${DEFAULT_PORT}.`,
      }),
    platform: platform.default("other"),
  })
  .meta({ id: "NewCertificateEndpoint", description: `A certificate has at most ${MAX_ADDED} of these endpoints.` });
export const EndpointAddressQuery = z.strictObject({
  assetId: certificateId,
  host,
  port: wholeNumber(1, 65_535, DEFAULT_PORT)
    .optional()
    .meta({ description: `Port. Default: ${DEFAULT_PORT}.` }),
});
export const EndpointCheckRequest = z.strictObject({ assetId: certificateId }).meta({ id: "CertificateEndpointCheck" });
export const CheckedEndpoints = z
  .object({ items: z.array(CertificateEndpoint).meta({ description: "All endpoints of the certificate." }) })
  .meta({ id: "CheckedCertificateEndpoints" });

/** @param now - Decides whether the platform is late. */
export function servedView(record: EndpointRecord, now: Date): z.infer<typeof ServedCertificate> {
  return {
    host: record.host,
    port: record.port,
    platform: record.platform,
    resource: record.resource ?? null,
    serial: record.serial ?? null,
    current: record.current ?? null,
    since: record.since ?? null,
    late: isLate(record, now),
    dueAt: record.dueAt ?? null,
    expiresOn: record.expiresOn ?? null,
    protocol: record.protocol ?? null,
    problems: describeProblems(record),
    checkedAt: record.checkedAt ?? null,
  };
}

export const endpointView = (record: Row<EndpointRecord>, now: Date): z.infer<typeof CertificateEndpoint> => ({
  ...servedView(record, now),
  assetId: assetId({ ...record, type: "certificate" }),
  addedAt: record.addedAt,
  addedBy: isDiscovered(record.rowKey) ? "system" : record.addedBy,
});
