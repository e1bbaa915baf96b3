// The name server of the simulated DNS zones, over UDP (RFC 1035). It answers for all zones, like a name server of Azure DNS.

import { createSocket } from "node:dgram";
import type { AddressInfo } from "node:net";
import type { DnsZones, RecordType } from "./zones.ts";

const TYPE_CODES: Record<RecordType, number> = { A: 1, NS: 2, CNAME: 5, SOA: 6, TXT: 16 };
const RESPONSE_AND_AUTHORITATIVE = 0x8400;
const RECURSION_DESIRED = 0x0100;
const CODES = { none: 0, nameError: 3 };

/** A running name server. */
export interface NameServer {
  port: number;
  /** Names and types that were asked, such as `TXT _acme-challenge.example.com`. */
  questions: string[];
  stop(): Promise<void>;
}

/**
 * Starts a name server at 127.0.0.1.
 *
 * @param lastPort - Port of the last start, which is used again if it is free. 0: any free port.
 */
export async function startNameServer(zones: DnsZones, lastPort: number): Promise<NameServer> {
  const questions: string[] = [];
  const start = async (port: number): Promise<NameServer> => {
    const socket = createSocket("udp4");
    socket.on("message", (message, sender) => {
      const answer = answerOf(message, zones, questions);
      if (answer !== undefined) socket.send(answer, sender.port, sender.address);
    });
    await new Promise<void>((resolve, reject) => {
      socket.once("error", reject);
      socket.bind(port, "127.0.0.1", resolve);
    });
    return {
      port: (socket.address() as AddressInfo).port,
      questions,
      stop: () => new Promise((resolve) => socket.close(() => resolve())),
    };
  };
  try {
    return await start(lastPort);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EADDRINUSE") throw error;
    return await start(0);
  }
}

/** Returns the response to a query with one question. Undefined for anything else. */
function answerOf(message: Buffer, zones: DnsZones, questions: string[]): Buffer | undefined {
  if (message.length < 17 || message.readUInt16BE(4) !== 1 || (message[2]! & 0x80) !== 0) return undefined;
  const { name, end } = readName(message, 12);
  const code = message.readUInt16BE(end);
  const question = message.subarray(12, end + 4);
  const type = (Object.keys(TYPE_CODES) as RecordType[]).find((one) => TYPE_CODES[one] === code);
  const respond = (responseCode: number, answers: Buffer[] = []) => {
    const head = Buffer.alloc(12);
    message.copy(head, 0, 0, 2);
    const flags = RESPONSE_AND_AUTHORITATIVE | (message.readUInt16BE(2) & RECURSION_DESIRED) | responseCode;
    head.writeUInt16BE(flags, 2);
    head.writeUInt16BE(1, 4);
    head.writeUInt16BE(answers.length, 6);
    return Buffer.concat([head, question, ...answers]);
  };
  if (type === undefined) {
    const found = zones.lookup(name, "A");
    return respond(found?.exists ? CODES.none : CODES.nameError);
  }
  questions.push(`${type} ${name}`);
  if (/\.azure-dns\.localhost$/.test(name) && type === "A")
    return respond(CODES.none, [record(type, 300, Buffer.from([127, 0, 0, 1]))]);
  const found = zones.lookup(name, type);
  // The client asks this server also about names of other owners, as it would ask a resolver.
  if (!found?.exists) return respond(CODES.nameError);
  return respond(
    CODES.none,
    found.records.flatMap((one) => one.values.map((value) => record(one.type, one.ttl, content(one.type, value)))),
  );
}

function readName(message: Buffer, start: number): { name: string; end: number } {
  const labels: string[] = [];
  let offset = start;
  for (let length = message[offset]!; length !== 0; length = message[offset]!) {
    labels.push(message.subarray(offset + 1, offset + 1 + length).toString("ascii"));
    offset += length + 1;
  }
  return { name: labels.join(".").toLowerCase(), end: offset + 1 };
}

/** Encodes a record of the question's name, to which the pointer 0xc00c leads. */
function record(type: RecordType, ttl: number, data: Buffer): Buffer {
  const head = Buffer.alloc(12);
  head.writeUInt16BE(0xc00c, 0);
  head.writeUInt16BE(TYPE_CODES[type], 2);
  head.writeUInt16BE(1, 4);
  head.writeUInt32BE(ttl, 6);
  head.writeUInt16BE(data.length, 10);
  return Buffer.concat([head, data]);
}

function content(type: RecordType, value: string): Buffer {
  if (type === "A") return Buffer.from(value.split(".").map(Number));
  if (type === "TXT") {
    const text = Buffer.from(value);
    return Buffer.concat([Buffer.from([text.length]), text]);
  }
  const labels = value.replace(/\.$/, "").split(".");
  return Buffer.concat([
    ...labels.map((label) => Buffer.concat([Buffer.from([label.length]), Buffer.from(label, "ascii")])),
    Buffer.from([0]),
  ]);
}
