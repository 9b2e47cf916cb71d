// Numbers by the browser's locale.

const numbers = new Intl.NumberFormat();

export const number = (value) => numbers.format(value);
