/** A property of an object type, as the type library prints it. */
export interface TypedProperty {
  name: string;
  /**
   * Type of the property: `string`, `int`, `bool`, `any`, the name of an object, `X[]`, or values as `A | B`. `| string` at the
   * end allows other values.
   */
  type: string;
  flags?: string;
  /** Constraints: `minValue: 1, maxValue: 7`, `minLength`, `maxLength`. */
  modifiers?: string;
}

export interface ObjectType {
  name: string;
  properties: TypedProperty[];
  /** Type of properties with any other name. */
  additionalPropertiesType?: string;
}

/** An object with several variants. The value of one property selects the variant. */
export interface VariantType {
  /** Name of that property, such as `endpointType`. */
  discriminator: string;
  forms: ObjectType[];
}

export interface ResourceType {
  /** Type with version, such as `Microsoft.KeyVault/vaults@2026-02-01`. */
  name: string;
  /** Body types. With more than one, the literal name of the resource selects the type. */
  bodies: ObjectType[];
  objects: Map<string, ObjectType>;
  variants: Map<string, VariantType>;
}

/** Resource types by name in lower case. */
export type TypeLibrary = Map<string, ResourceType>;
