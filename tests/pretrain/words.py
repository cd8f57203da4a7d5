"""The open vocabulary of the lessons in calling tools, and what is kept out of it.

A name is of English words, or of syllables that are drawn afresh, in snake or camel case. So hardly
any name occurs twice, and learning them by heart does not pay. `HELD_OUT` words occur in no lesson:
what a base does with them is what it does with names that nobody has seen.
"""

import re
from collections.abc import Sequence
from random import Random
from string import ascii_letters
from typing import Any

from hud_tui.service.engines.tiny.tokenizer import FIRST_PAIR, BpeTokenizer


def _words(text: str) -> list[str]:
    return text.split()


NOUNS = _words(
    """
    account address age airport album alarm amount angle animal apple area article asset
    author badge bag balance balloon band bank basket battery beach bed bell berry bike bill bird
    block board boat body bolt book bottle bowl box branch brand bread brick bridge brush bucket
    budget button cabin cable cake camera candle card carpet cart castle cat cell chain chair
    chapter chart cheese circle city class clock cloth cloud coat code coin color column comment
    company copper corner cost count country course cover cow credit crop cup curtain customer
    dance data date day debt deck degree delay desk device diary dish distance doctor dog door
    draft dress drum edge egg email engine entry event exam fabric factory fan farm fee feather
    fence field file film filter finger fire fish flag flight floor flower folder food forest fork
    fruit fuel game garden gate gear gift glass glove goal goat gold grade grain grape grass group
    guest guide guitar habit hall hammer hand harbor hat head height hen hill hole honey horse
    hotel hour house ice image index insect iron island item jacket jar journal journey juice
    key kitchen kite knife label ladder lake lamp land lane leaf league lemon length lesson letter
    level library light limit line lion list loan lock log machine mail map mark market mask match
    meal meeting member memory menu message metal meter mile milk mine mirror model money month
    moon motor mountain mouse movie museum music nail name needle nest net night node note number
    nut oak ocean office oil onion orange oven owner page paint pair palace paper park part party
    patch path payment peach pear pen pencil people pepper permit person phone photo piano picture
    pie pillow pin pipe plan plane planet plant plate player pocket poem point pond pool port post
    pot potato pound power price prize product profile profit project pump purse queue quiz rabbit
    radio rail rain range rank rate record region rent report rice ring river road robe
    robot rock role roof room root rope rose route row rug rule salad sale salt sand scale scarf
    scene school score screen sea season seat section seed sensor server shape sheep shelf shell
    ship shirt shoe shop shower sign signal silk silver size sky sleeve slot snow soap sock sofa
    soil song soup space spoon square stage stamp star state station steel step stone storm story
    street string student sugar suit summer sun survey table tail tank tax tea tent term
    test text theater thread ticket tide tiger title toast token tooth topic towel tower
    town toy track train tray treaty tree trip truck trunk tub tube tunnel uncle unit user valley
    van vase vehicle view village vote wagon wall watch water wave wax week weight wheel
    width wind window wine winter wire wolf wood wool word work world yard year zone
    """
)
VERBS = _words(
    """
    add adjust apply ask assign attach book bring build buy call cancel carry catch change charge
    check choose clean clear close collect compare connect copy count create cut delete deliver
    describe draw drive drop edit enter erase estimate explain export extract fill find fix fold
    follow freeze get give group guess hide hold import insert inspect join keep label lift link
    list load log look make map mark measure merge mix move name notify open pack paint park pay
    pick plan plot post press print publish pull push rate read record reduce remove rename repair
    replace report reserve reset restore return review roll rotate run save scale scan search
    select sell send set share show shuffle sort split start stop store submit swap switch tag
    take talk test tie track transfer trim turn update upload use wash watch weigh wrap write
    """
)
ADJECTIVES = _words(
    """
    big black blue brave bright brown busy calm cheap clean cold cool dark deep dirty dry early
    easy empty fast fine flat free fresh full gentle grand green happy hard heavy high hollow hot
    kind large last late light little long loud low lucky main mild modern narrow near neat new
    next nice noisy odd old open pale plain proud public pure quick quiet rare raw red rich ripe
    rough round royal sad safe sharp short shy silent simple slow small smooth soft solid sour
    spare strong sweet tall tame thick thin tidy tiny total warm weak wet white whole wide wild
    wise yellow young
    """
)
PROPER = _words(
    """
    Adam Alice Anna Athens Austria Berlin Brazil Bruno Cairo Canada Carla Chile Clara Congo Cuba
    Daniel Delhi Denmark Diego Dublin Egypt Elena Emma Finland Florence Frank Geneva Ghana Greece
    Hanna Henry Iceland India Ivan Jakarta Japan Jonas Julia Kenya Laura Lima Lisbon London Lucas
    Madrid Malta Maria Martin Mexico Milan Moscow Nadia Nepal Nina Norway Omar Oscar Panama Paul
    Peru Peter Poland Prague Quito Robert Rosa Samuel Seoul Sofia Spain Stefan Sweden Sydney
    Tanzania Thomas Tokyo Tunis Turkey Victor Vienna Warsaw Zambia
    """
)
FILLERS = _words(
    """
    the a to of and with for in it is you me this please should then can will that what the a to
    of and with for in let make may could would must through by about into i we there here now just
    also not if so when first again my your our one some any need want please kindly
    """
)
"""What sentences are made of."""
COMMON = _words(
    """
    able above across actually advice afraid after afternoon ago agree ahead allow almost alone
    along already also although always among another anyone anything anyway anywhere appear around
    arrive aside available away back basically because become been before began begin behind being
    believe below beside besides best better between beyond boss both brother business care certain
    certainly chance child clearly client clue come coming common completely concern consider
    continue correct correctly could couple curious current currently daughter deal dear decide
    definitely despite details did differ different difficult directly discuss does doing done down
    during each eager easily either else enough entire especially even evening ever every everybody
    everyone everything everywhere exactly example except exciting expect experience fact fairly
    family far father favor feel few finally fortunately forward frankly friend from further general
    generally gladly gone good got gotten great guys had half happen happened happens hardly has
    have having hear heard hello hence her hers herself hi him himself his honestly hope hopefully
    how however husband idea ideas immediately important indeed information inside instance instead
    interested into issue itself keen kid kindly knew know known lady lately later latter learn
    least leave less lets life like likely listen lot lots luck made mainly man manager many matter
    matters maybe mean means meanwhile meant might mind minute moment more morning most mostly
    mother much must myself namely nearly necessary neighbor neither never nevertheless news nobody
    none nor normally nothing notice nowhere obviously occasion off often okay once only onto
    opinion opportunity option other others otherwise ought ours ourselves out outcome outside over
    own particular partner pass past per perfect perhaps personally please pleased pleasure possible
    possibly precisely prefer pretty previous probably problem process proper properly provided
    purpose question quickly quite rather ready real really reason recent recently regard regarding
    regular reply require response rest right said same say saying says second see seem seems seen
    seldom sense service settle several shall she shortly should since sir sister situation smart
    sometimes somewhat somewhere soon sorry speak special specific spoke still stuff such suddenly
    suggest suppose sure surely tasks teacher tell tells than thank thanks their theirs them
    themselves therefore these they thing things think third those though thought thousand through
    throughout thus times today together told tomorrow tonight too took toward tried true truly
    trust try trying twice two under understand unless until upon urgent urgently use used useful
    usually various very want wanted wants was way ways well went were whatever whenever where
    whether which while who whom whose why wife willing wish within without woman wonder wondering
    worked works worth would wrong yes yesterday yet you yours yourself
    """
)
"""Other words of which sentences are made, and which are no values."""

HELD_OUT_NAMES = _words(
    """
    stock order sum divide weather lookup convert invoice parcel translate forecast ticker booking
    recipe currency shipment warehouse inventory temperature calendar patient vendor tariff galaxy
    compass velvet harvest canyon thermostat
    """
)
"""Names, and parts of names."""
HELD_OUT_VERBS = _words(
    """
    fetch retrieve compute obtain determine query invoke execute request consult
    """
)
HELD_OUT_VALUES = _words(
    """
    hinge walnut falcon Boston Hamburg Nairobi Miriam Gustav marble saffron lantern cobalt badger
    Oslo Toronto Kyoto Beatrice violin gravel cactus
    """
)
HELD_OUT = frozenset(word.lower() for word in (*HELD_OUT_NAMES, *HELD_OUT_VERBS, *HELD_OUT_VALUES))

ONSETS = _words(
    """
    b bl br c ch cl d dr f fl g gl gr h j k l m n p pl pr qu r s sh sk sl sp st t th tr v w y z
    """
)
VOWELS = _words("a e i o u a e i o u ai ea ee oa oo ou")
CODAS = _words("b ck d f g ft l ld m n nd ng nt p r rd rk rn s sk st t x z")
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")


JOINED = 0.08
"""Share of names that have a word of sentences in them."""


def allowed(text: str) -> bool:
    """Whether no word of it is held out."""
    return not HELD_OUT & {word.lower() for word in WORD.findall(text)}


class Words(Random):
    """Draws words, names and values."""

    def __init__(self, seed: str | int, pieces: Sequence[str] = ()) -> None:
        """`pieces`: parts of words that have a token each. Words of random ones teach to copy every
        token, rare ones too."""
        super().__init__(seed)
        self.pieces = pieces
        self.in_a_row = False
        """Whether tasks are of two calls, of which the second needs the answer of the first."""
        self.plain = False
        """Whether values are words without quotes, which only their place in a sentence tells from
        others."""

    def nonsense(self) -> str:
        """A word of one to three syllables, or of as many pieces."""
        parts: list[str] = []
        by_piece = self.pieces and self.random() < 0.6
        for _ in range(self.choice((1, 2, 2, 2, 3))):
            if by_piece:
                parts.append(self.choice(self.pieces))
                continue
            parts.append(self.choice(ONSETS) if self.random() < 0.9 else "")
            parts.append(self.choice(VOWELS))
            parts.append(self.choice(CODAS) if self.random() < 0.5 else "")
        made = "".join(parts)
        return made if allowed(made) else self.nonsense()

    def word(self) -> str:
        """A word in small letters, English or not."""
        if self.random() < 0.55:
            return self.nonsense()
        return self.choice(self.choice((NOUNS, NOUNS, NOUNS, VERBS, ADJECTIVES)))

    def name(self, *parts: str) -> str:
        """A name made of these words, or of any, in snake or camel case."""
        if not parts:
            parts = tuple(self.word() for _ in range(self.choice((1, 1, 1, 1, 2, 2, 3))))
        if self.random() < JOINED:
            parts = (*parts, self.choice(FILLERS), *((self.word(),) * (self.random() < 0.3)))
        style = self.random()
        if style < 0.65:
            return "_".join(parts)
        if style < 0.9:
            return parts[0] + "".join(part.capitalize() for part in parts[1:])
        return "".join(part.capitalize() for part in parts)

    def value(self, kind: str) -> Any:
        """A value of an argument of this type, or one of its choices."""
        if "|" in kind:
            return self.choice(kind.split("|"))
        if kind == "integer":
            size = self.choice((10, 100, 100, 1000, 1000, 10_000, 100_000))
            return self.randrange(size) * (-1 if self.random() < 0.04 else 1)
        if kind == "number":
            return self.randrange(1000) / self.choice((2, 4, 5, 10))
        return self.random() < 0.5 if kind == "boolean" else self._string()

    def _string(self) -> str:
        if self.plain:
            return self.word()
        style = self.random()
        if style < 0.45:
            return self.word()
        if style < 0.7:
            return self.choice(PROPER) if self.random() < 0.5 else self.nonsense().capitalize()
        if style < 0.82:
            return f"{self.choice(ADJECTIVES)} {self.choice(NOUNS)}"
        letters = "".join(self.choices(ascii_letters, k=self.randint(1, 3)))
        return f"{letters}{self.choice(('', '', '-', '_'))}{self.randrange(1000)}"


def pieces(tokenizer: BpeTokenizer) -> list[str]:
    """Its tokens that are letters: parts of words."""
    ids = range(FIRST_PAIR, tokenizer.vocabulary - len(tokenizer.words or ()))
    texts = map(tokenizer.decode, ([id_] for id_ in ids))
    return [text for text in texts if text.isascii() and text.isalpha() and text.islower()]
