import http from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import { HOSTILE_XML } from "../../test/sso/saml/hostile-xml.ts";
import { base64, Signer, verificationResult } from "../../test/sso/saml/signing.ts";
import { licence } from "../../test/support/licence.ts";
import { Service } from "../../test/support/service.ts";
import { atMost, equalTo, type Figure, median, type Section } from "./section.ts";
import { sendTimedRequest, type TimedResponse } from "./timed-request.ts";

/** Runs per document. The figure is their median, so that garbage collection does not count. */
const RUNS = 9;
/** Bound of the processor time for one document, in milliseconds. */
const DOCUMENT_LIMIT_MS = 50;
const CLIENTS = 10;
/** Number of `/health` requests per measurement, and the pause between two of them. */
const HEALTH_REQUESTS = 60;
const HEALTH_PAUSE_MS = 20;
/** Bound of the time by which the posts may delay `/health`, in milliseconds. */
const HEALTH_LIMIT_MS = 100;
const ORIGIN = "http://localhost:7071";

/** Benchmark `hostileXml`: measures the cost of SAML responses that are made to take an XML parser a long time. */
export async function hostileXml(): Promise<Section> {
  const documents = [...Object.entries(HOSTILE_XML).map(([name, { xml }]) => ({ name, xml })), ...parsedDocuments()];
  const idp = new Signer();
  await verificationResult(await idp.respond(), idp.expected());
  const costs: { name: string; ms: number }[] = [];
  for (const { name, xml } of documents) costs.push({ name, ms: await processorMs(xml, idp) });
  const posts = await healthUnderPosts(documents.map(({ xml }) => base64(xml)));
  const delayMs = median(posts.healthUnderLoad) - median(posts.healthAlone);
  const statuses = Object.entries(posts.statuses).map(([status, count]) => `${count} answered ${status}`);
  const unexpected = Object.entries(posts.statuses).map(([status, count]) => (status === "400" ? 0 : count));
  return {
    title: "Hostile SAML responses",
    how: `${documents.length} documents up to the size limit that take XML parsers seconds, or that are as large as the limits allow. Processor time: the whole check of a response in this process, the median of ${RUNS}. \`/health\`: ${HEALTH_REQUESTS} requests alone, and ${HEALTH_REQUESTS} while ${CLIENTS} clients start sign-ins and post these documents, each sign-in from another address, so that no rate limit protects the service; medians.`,
    figures: [
      ...costs.map(
        ({ name, ms }): Figure => ({
          what: `processor time: ${name}`,
          value: `${ms.toFixed(1)} ms`,
          comparedWith: "",
          bound: atMost(ms, DOCUMENT_LIMIT_MS, " ms"),
        }),
      ),
      {
        what: `/health, while ${CLIENTS} clients post hostile SAML responses`,
        value: `${median(posts.healthUnderLoad).toFixed(1)} ms, the longest ${Math.max(...posts.healthUnderLoad).toFixed(1)} ms`,
        comparedWith: `${median(posts.healthAlone).toFixed(1)} ms alone; ${statuses.join(", ")}`,
        bound: atMost(Number(delayMs.toFixed(1)), HEALTH_LIMIT_MS, " ms more than alone"),
      },
      {
        what: "posts of hostile SAML responses that are not answered 400",
        value: String(unexpected.reduce((total, count) => total + count, 0)),
        comparedWith: "",
        bound: equalTo(
          unexpected.reduce((total, count) => total + count, 0),
          0,
        ),
      },
    ],
  };
}

/**
 * Returns documents at the limits of `checkXmlLimits`, which are parsed. The root element counts too, with its name, its level
 * and its prefix.
 */
function parsedDocuments(): { name: string; xml: string }[] {
  const response = (inside: string) =>
    `<samlp:Response xmlns:samlp="urn:oasis:names:tc:SAML:2.0:protocol">${inside}</samlp:Response>`;
  const repeat = (count: number, piece: (index: number) => string) =>
    Array.from({ length: count }, (_, index) => piece(index)).join("");
  const prefixes = repeat(63, (index) => ` xmlns:n${index}="u"`);
  return [
    { name: "4,998 elements, parsed", xml: response("<a/>".repeat(4_997)) },
    { name: "2,499 elements with a prefix each, parsed", xml: response('<a xmlns:n="u"/>'.repeat(2_498)) },
    {
      name: "50 levels and 64 prefixes, parsed",
      xml: response(`<a${prefixes}>${"<b>".repeat(48)}${"</b>".repeat(48)}</a>`),
    },
    { name: "4,900 elements below 64 prefixes, parsed", xml: response(`<a${prefixes}>${"<b/>".repeat(4_900)}</a>`) },
    { name: "256 different names, parsed", xml: response(repeat(4_900, (index) => `<a${index % 255}/>`)) },
    { name: "250 KiB of text, parsed", xml: response("&amp;".repeat(50 * 1024)) },
  ];
}

/** Returns the median processor time in milliseconds of checking a response. */
async function processorMs(xml: string, idp: Signer): Promise<number> {
  const durations: number[] = [];
  for (let run = 0; run < RUNS; run++) {
    const started = process.cpuUsage();
    await verificationResult(xml, idp.expected());
    const { user, system } = process.cpuUsage(started);
    durations.push((user + system) / 1000);
  }
  return median(durations);
}

/** Measures `/health` alone and while clients post SAML responses. Durations in milliseconds. */
async function healthUnderPosts(responses: string[]) {
  const service = await Service.start({
    company: { subscriptions: [] },
    // The host appends an entry to X-Forwarded-For. With two hops, the entry before it, which the clients send, is the address.
    env: { LICENSE_KEY: await licence(), PUBLIC_BASE_URL: ORIGIN, TRUSTED_PROXY_HOPS: "2" },
  });
  const agent = new http.Agent({ keepAlive: true });
  try {
    const saved = await service.admin("PUT", "/auth/sso/config", {
      providerType: "saml",
      isEnabled: true,
      samlIdpMetadataXml: service.cloud.saml.metadata(),
    });
    if (saved.status !== 200) throw new Error(saved.text);
    const statuses: Record<string, number> = {};
    let isDone = false;
    let sent = 0;
    async function postResponses(): Promise<void> {
      while (!isDone) {
        const { status } = await postInNewSignIn(service.url, agent, responses[sent % responses.length]!, sent++);
        statuses[status] = (statuses[status] ?? 0) + 1;
      }
    }
    // Warms up the service.
    await postInNewSignIn(service.url, agent, responses[0]!, sent++);
    const healthAlone = await timeHealth(service.url, agent);
    const clients = Promise.all(Array.from({ length: CLIENTS }, postResponses));
    const healthUnderLoad = await timeHealth(service.url, agent);
    isDone = true;
    await clients;
    return { healthAlone, healthUnderLoad, statuses };
  } finally {
    agent.destroy();
    await service.stop();
  }
}

/** Starts a sign-in from an address of its own, and posts a response as if the provider had sent it. */
async function postInNewSignIn(
  url: string,
  agent: http.Agent,
  response: string,
  index: number,
): Promise<TimedResponse> {
  const address = `10.${(index >> 16) & 255}.${(index >> 8) & 255}.${index & 255}`;
  const headers = { "X-Forwarded-For": address };
  const started = await fetch(`${url}/auth/sso/login`, { redirect: "manual", headers });
  if (started.status !== 302) throw new Error(await started.text());
  const relayState = new URL(started.headers.get("location")!).searchParams.get("RelayState")!;
  return await sendTimedRequest(agent, `${url}/auth/sso/callback`, {
    method: "POST",
    headers: {
      ...headers,
      Cookie: started.headers.getSetCookie()[0]!.split(";")[0]!,
      "Content-Type": "application/x-www-form-urlencoded",
    },
    body: new URLSearchParams({ SAMLResponse: response, RelayState: relayState }).toString(),
  });
}

async function timeHealth(url: string, agent: http.Agent): Promise<number[]> {
  const durations: number[] = [];
  for (let sent = 0; sent < HEALTH_REQUESTS; sent++) {
    const response = await sendTimedRequest(agent, `${url}/health`);
    if (response.status !== 200) throw new Error(`/health answered ${response.status}`);
    durations.push(response.milliseconds);
    await delay(HEALTH_PAUSE_MS);
  }
  return durations;
}
