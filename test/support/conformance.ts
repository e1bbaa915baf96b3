import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";

interface Operation {
  responses: Record<
    string,
    {
      description: string;
      content?: Record<string, { schema: object }>;
      headers?: Record<string, unknown>;
      "x-other-media-types"?: string[];
    }
  >;
}
export interface Description {
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: Record<string, object> };
}

/** Compares responses with the OpenAPI document of the service. */
export class Conformance {
  readonly document: Description;
  private readonly ajv = new Ajv2020({ strict: false, allErrors: true });
  /** Compiled validators by schema. */
  private readonly validators = new Map<object, ValidateFunction>();

  constructor(document: Description) {
    this.document = document;
    addFormats.default(this.ajv);
    this.ajv.addSchema({ $id: "openapi.json", components: document.components });
  }

  /**
   * Checks status, media type, JSON schema and problem code of a response. Does nothing if the document does not contain the
   * method and path.
   *
   * @throws {Error} If the response does not match the document.
   */
  check(method: string, path: string, status: number, contentType: string | null, text: string): void {
    const operation = this.operation(method, path);
    if (!operation) return;
    const where = `${method} ${path} answered ${status}`;
    const response = operation.responses[String(status)];
    if (!response) throw new Error(`${where}, which its description does not have: ${text.slice(0, 500)}`);
    const type = contentType?.split(";")[0] ?? "";
    if (!response.content && type === "" && text === "") return;
    if (response["x-other-media-types"]?.includes(type)) return;
    const media = response.content?.[type];
    if (!media) throw new Error(`${where} as ${type}, which its description does not have`);
    if (!type.endsWith("json")) return;
    const validate = this.validator(media.schema);
    if (!validate(JSON.parse(text))) {
      throw new Error(`${where} not as described: ${this.ajv.errorsText(validate.errors)}\n${text.slice(0, 1000)}`);
    }
    // The description of an error response lists the titles of its problem codes.
    if (status < 400) return;
    const { code, title } = JSON.parse(text) as { code: string; title: string };
    if (!response.description.includes(title))
      throw new Error(`${where} with ${code}, which its description does not have`);
  }

  private validator(schema: object): ValidateFunction {
    let validate = this.validators.get(schema);
    if (!validate) {
      const local = JSON.parse(
        JSON.stringify(schema).replaceAll('"#/components/', '"openapi.json#/components/'),
      ) as object;
      validate = this.ajv.compile(local);
      this.validators.set(schema, validate);
    }
    return validate;
  }

  /** Returns the operation of a method and path. The paths of one method don't overlap, so at most one operation matches. */
  private operation(method: string, path: string): Operation | undefined {
    const segments = path.replace(/\/$/, "").split("/");
    const matches = (template: string) => {
      const templateSegments = template.split("/");
      return (
        templateSegments.length === segments.length &&
        templateSegments.every((part, index) =>
          part.startsWith("{") ? segments[index] !== "" : part === segments[index],
        )
      );
    };
    const match = Object.entries(this.document.paths).find(
      ([template, operations]) => method.toLowerCase() in operations && matches(template),
    );
    return match?.[1][method.toLowerCase()];
  }
}
