import { connect } from "node:net";
import { text } from "node:stream/consumers";

/** The response of a server. */
export interface RawAnswer {
  status: number;
  /** Header names are in lower case. */
  headers: Map<string, string>;
  body: string;
}

/**
 * Sends an HTTP request that HTTP clients refuse to send, for example with an invalid header, and reads the response until the
 * server closes the connection.
 *
 * @param lines - Request line and headers, without line ends. They must include `Connection: close`.
 */
export async function rawRequest(
  url: string,
  lines: readonly string[],
  body: string | Buffer = "",
): Promise<RawAnswer> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  socket.write(`${lines.join("\r\n")}\r\n\r\n`, "latin1");
  socket.write(body);
  const answer = await text(socket);
  const [head = "", ...rest] = answer.split("\r\n\r\n");
  const [statusLine = "", ...headers] = head.split("\r\n");
  return {
    status: Number(statusLine.split(" ")[1]),
    headers: new Map(
      headers.map((line) => [line.slice(0, line.indexOf(":")).toLowerCase(), line.slice(line.indexOf(":") + 1).trim()]),
    ),
    body: rest.join("\r\n\r\n"),
  };
}
