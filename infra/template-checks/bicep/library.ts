// Types of the type library: the properties of Azure resources, which the Bicep files are checked against. `types.ts` loads it.

/** A property of an object type. */
export interface TypedProperty {
  name: string;
  /**
   * Type of the property: `string`, `int`, `bool`, `any`, the name of an object, `X[]`, or values as `A | B`. `| string` at the
   * end allows other values.
   */
  type: string;
  /** Contains `Required` or `ReadOnly`, if that applies. */
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
  /** Types of nested objects by name. */
  objects: Map<string, ObjectType>;
  /** Nested objects with several variants, by name. */
  variants: Map<string, VariantType>;
}

/** Resource types by name without version, in lower case. */
export type TypeLibrary = Map<string, ResourceType>;
