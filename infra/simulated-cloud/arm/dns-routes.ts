// Azure DNS in the simulated Azure Resource Manager: https://learn.microsoft.com/rest/api/dns/record-sets

import { RECORD_TYPES, type RecordSet, type RecordType, recordKey, type Zone } from "../dns/zones.ts";
import { type IncomingRequest, jsonObject, type ServiceResponse } from "../http.ts";
import { type ArmOptions, failure, type Route } from "./request-context.ts";
import { subscriptionError } from "./resource-route.ts";

const VERSIONS = ["2016-04-01", "2017-10-01", "2018-05-01", "2023-07-01-preview"];
const PATH =
  /^\/subscriptions\/([^/]+)\/resourcegroups\/([^/]+)\/providers\/microsoft\.network\/dnszones\/([^/]+)(?:\/([a-z]+)\/([^/]+))?$/i;
const MAX_RECORDS = 20;
const MAX_TEXT_BYTES = 4096;

/** Returns the route of a request to a DNS zone or to a record set. Undefined for other requests. */
export function dnsRoute(options: ArmOptions, request: IncomingRequest): Route | undefined {
  const [path, subscription, , , type, relative] = PATH.exec(decodeURI(request.path)) ?? [];
  if (path === undefined || subscription === undefined) return undefined;
  const zoneId = type === undefined ? path : path.split("/").slice(0, -2).join("/");
  const route = (name: string, action: string, answer: (zone: Zone) => ServiceResponse): Route => ({
    name: `arm.${name}`,
    versions: VERSIONS,
    action: `Microsoft.Network/dnsZones/${action}`,
    subscription,
    resource: zoneId,
    ...(relative !== undefined && { item: relative }),
    answer(claims) {
      const error = subscriptionError(options, subscription, claims, action);
      if (error !== undefined) return error;
      const zone = options.zones.zone(zoneId);
      return zone === undefined
        ? failure(404, "ResourceNotFound", `The Resource '${zoneId.split("/providers/")[1]}' was not found.`)
        : answer(zone);
    },
  });
  if (type === undefined) {
    if (request.method !== "GET") return undefined;
    return route("getDnsZone", "read", (zone) => ({ status: 200, body: zoneJson(zone) }));
  }
  const recordType = RECORD_TYPES.find((one) => one === type.toUpperCase());
  if (recordType === undefined) return undefined;
  const action = `${recordType}/`;
  const find = (zone: Zone) => zone.records.get(recordKey(recordType, relative!));
  if (request.method === "GET")
    return route("getDnsRecordSet", `${action}read`, (zone) => {
      const record = find(zone);
      return record ? { status: 200, body: recordJson(zone, record) } : noRecord(relative!);
    });
  if (request.method === "PUT")
    return route("putDnsRecordSet", `${action}write`, (zone) => {
      const record = find(zone);
      const conflict = preconditionProblem(request, record);
      if (conflict !== undefined) return conflict;
      const requested = requestedRecord(request, recordType, relative!);
      if ("status" in requested) return requested;
      const alias = recordType === "CNAME" ? undefined : zone.records.get(recordKey("CNAME", relative!));
      if (alias !== undefined)
        return failure(400, "BadRequest", `The record set ${relative} already exists as a CNAME record set.`);
      return {
        status: record === undefined ? 201 : 200,
        body: recordJson(zone, options.zones.put(zone, requested)),
      };
    });
  if (request.method === "DELETE")
    return route("deleteDnsRecordSet", `${action}delete`, (zone) => {
      const record = find(zone);
      if (record === undefined) return { status: 204 };
      const conflict = preconditionProblem(request, record);
      if (conflict !== undefined) return conflict;
      options.zones.remove(zone, record);
      return { status: 200 };
    });
  return undefined;
}

const noRecord = (name: string): ServiceResponse =>
  failure(404, "NotFound", `The resource record '${name}' does not exist in this zone.`);

/** Evaluates `If-Match` and `If-None-Match`. Returns the 412 response, or undefined. */
function preconditionProblem({ headers }: IncomingRequest, record: RecordSet | undefined): ServiceResponse | undefined {
  const match = headers["if-match"];
  const failed =
    (headers["if-none-match"] === "*" && record !== undefined) ||
    (match !== undefined && match !== "" && match !== "*" && record?.etag !== match.replaceAll('"', "")) ||
    (match === "*" && record === undefined);
  return failed ? failure(412, "PreconditionFailed", "The condition provided in the headers was not met.") : undefined;
}

function requestedRecord(
  request: IncomingRequest,
  type: RecordType,
  name: string,
): Omit<RecordSet, "etag"> | ServiceResponse {
  const body = jsonObject(request) as { properties?: Record<string, unknown> } | undefined;
  const { TTL: ttl, metadata = {}, TXTRecords: texts, CNAMERecord: alias } = body?.properties ?? {};
  const invalid = (message: string) => failure(400, "BadRequest", message);
  if (typeof ttl !== "number") return invalid("The value of 'TTL' must be a whole number.");
  if (type === "CNAME") {
    const target = (alias as { cname?: unknown } | undefined)?.cname;
    if (typeof target !== "string") return invalid("The record set has no CNAME record.");
    return { name, type, ttl, values: [target], metadata: metadata as Record<string, string> };
  }
  if (type !== "TXT" || !Array.isArray(texts)) return invalid(`The record set has no ${type} records.`);
  const values = (texts as { value?: unknown }[]).map(({ value }) => (Array.isArray(value) ? value.join("") : ""));
  if (values.length === 0 || values.length > MAX_RECORDS)
    return invalid(`The record set must have 1 to ${MAX_RECORDS} records.`);
  if (values.some((one) => one === "" || Buffer.byteLength(one) > MAX_TEXT_BYTES))
    return invalid("A text record is empty or too long.");
  if (new Set(values).size < values.length) return invalid("The record set has the same record twice.");
  return { name, type, ttl, values, metadata: metadata as Record<string, string> };
}

function recordJson(zone: Zone, { name, type, ttl, values, metadata, etag }: RecordSet): object {
  const fqdn = name === "@" ? `${zone.name}.` : `${name}.${zone.name}.`;
  return {
    id: `${zone.id}/${type}/${name}`,
    name,
    type: `Microsoft.Network/dnszones/${type}`,
    etag,
    properties: {
      fqdn,
      TTL: ttl,
      metadata,
      provisioningState: "Succeeded",
      targetResource: {},
      ...(type === "TXT" && { TXTRecords: values.map((value) => ({ value: value.match(/.{1,255}/g) })) }),
      ...(type === "CNAME" && { CNAMERecord: { cname: values[0] } }),
      ...(type === "NS" && { NSRecords: values.map((nsdname) => ({ nsdname })) }),
    },
  };
}

const zoneJson = ({ id, name, nameServers, records }: Zone): object => ({
  id,
  name,
  type: "Microsoft.Network/dnszones",
  location: "global",
  tags: {},
  etag: "00000002-0000-0000-3f5d-a5a4d4d9d801",
  properties: {
    maxNumberOfRecordSets: 10_000,
    numberOfRecordSets: records.size,
    nameServers,
    zoneType: "Public",
  },
});
